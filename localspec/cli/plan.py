"""`localspec plan`: what goes where, on this machine or on one that is described, and what it comes to."""

from __future__ import annotations

from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.model_option import model_and_draft, with_pair
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.cli.sizes import read_size, size
from localspec.errors import UsageError
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.layer_sizes import anatomy
from localspec.models.gguf.shards import read_model
from localspec.models.pairs import require_fit
from localspec.models.plan import calibration
from localspec.models.plan.describe import to_wire
from localspec.models.plan.machine import CPU, DISK, Device, Machine, Rates, flat
from localspec.models.plan.search import ACCEPTANCE, Models, PlacementRequest, Plan, alternatives
from localspec.models.store import parse_pair
from localspec.sanitize import one_line
from localspec.settings.request import cache_folder
from localspec.ui.ask import ask
from localspec.ui.values import servers

IMPORTS = "from localspec.backends.survey import survey"
_PLAN, _MACHINE = "Plan", "Machine (this one, unless these options describe another)"


@click.command(cls=Command)
@click.argument("pair", shell_complete=pair_names)
@option("-d", "--draft", metavar="FILE", section=_PLAN, help="The draft model, or 'none'.")
@option("--ctx", type=click.IntRange(2, 2**31 - 1), metavar="N", section=_PLAN, help="Context in tokens.")
@option(
    "--kv",
    type=click.Choice(["auto", "f32", "f16", "q8_0", "q4_0"]),
    default="f16",
    section=_PLAN,
    help="Type of the attention cache; auto may take q8_0, which changes the distribution a little.  [default: f16]",
)
@option(
    "--acceptance",
    type=click.FloatRange(0, 1),
    default=ACCEPTANCE,
    metavar="P",
    section=_PLAN,
    help=f"Assumed probability that a draft token is accepted.  [default: {ACCEPTANCE}]",
)
@option("--vram", metavar="SIZE,...", section=_MACHINE, help="Free memory of each GPU: 24G or 24G,8G; 0 for none.")
@option("--ram", metavar="SIZE", section=_MACHINE, help="Free main memory: 64G.")
@option("--unified", is_flag=True, section=_MACHINE, help="The GPU's memory is main memory, as on Apple silicon.")
@option("--threads", type=click.IntRange(1, 512), metavar="N", section=_MACHINE, help="Physical cores.")
@option(
    "--bandwidth",
    metavar="GB/S",
    section=_MACHINE,
    help="Memory bandwidths to predict from, in GB/s: gpu=936,cpu=60,disk=3; gpu0=, gpu1= for one of several.",
)
@option("--rpc", metavar="HOST:PORT,...", section=_MACHINE, help="RPC servers whose devices count too.")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def plan(console: Console, /, pair: str, as_json: bool, **values: Any) -> int:
    """Show where the parts of PAIR would be placed, with memory and predicted speed.

    The first line is the fastest; the others are the alternatives. With a GPU or an RPC server, --gpu auto loads by
    this plan. It never leaves out a draft that was named, but says if that would be faster.

    Speeds follow from bandwidths, measured by localspec calibrate --machine or given by --bandwidth, and from the
    assumed acceptance. Only the reading of weights and cache is counted. Without bandwidths there is an order and no
    number.
    """
    found = parse_pair(*model_and_draft(with_pair(values, pair)))
    target, target_info = _look_at(str(found.target))
    draft = None if found.draft is None else _look_at(str(found.draft))
    if draft is not None:
        require_fit(target_info, draft[1])
    models = Models(
        anatomy(target),
        None if draft is None else anatomy(draft[0]),
        target_info.n_ctx_train,
        4096 if draft is None else draft[1].n_ctx_train,
    )
    machine = _machine(values)
    request = PlacementRequest(values["ctx"], values["kv"], acceptance=values["acceptance"], threads=values["threads"])
    plans = alternatives(machine, models, request)
    if as_json:
        write_json(_wire(found.name, machine, models, request, plans))
    else:
        write_out(_table(one_line(found.name), machine, models, request, plans))
    return 0


def _look_at(path: str) -> tuple[Header, ModelInfo]:
    header = read_model(path)
    return header, model_info(header)


def _machine(values: dict[str, Any]) -> Machine:
    """Return the machine that the options describe, as far as they do, and this one for the rest."""
    figures = _bandwidths(values["bandwidth"])
    described = values["vram"] is not None and values["ram"] is not None
    if described and values["rpc"] is None:
        return _with_figures(_given(values), figures)
    facts = ask(f"survey({servers(values['rpc'])!r})", IMPORTS)
    measured = calibration.load(cache_folder("machine"))

    def rates(one: dict[str, Any]) -> Rates | None:
        return None if measured is None else measured.rates(one["name"], one["description"])

    devices = tuple(
        Device(one["name"], one["free"], rates(one), one["is_unified"], one["is_remote"], one["is_integrated"])
        for one in facts["all"]
        if one["takes_layers"]
    )
    if values["vram"] is not None:
        devices = (*_given(values).devices, *(device for device in devices if device.is_remote))
    ram = facts["ram"] if values["ram"] is None else read_size("--ram", values["ram"])
    if ram is None:
        raise UsageError("the system does not say how much memory is free", hint="--ram 16G")
    cpu = next((rates(one) for one in facts["all"] if one["name"] == CPU), None)
    return _with_figures(Machine(ram, values["threads"] or facts["cores"], devices, cpu), figures)


def _given(values: dict[str, Any]) -> Machine:
    """Return the machine of --vram and --ram alone."""
    sizes = [read_size("--vram", text) for text in values["vram"].split(",")]
    devices = tuple(Device(f"GPU{i}", n, is_unified=values["unified"]) for i, n in enumerate(sizes) if n)
    return Machine(0 if values["ram"] is None else read_size("--ram", values["ram"]), values["threads"] or 0, devices)


def _with_figures(machine: Machine, figures: dict[str, float]) -> Machine:
    """Return the machine with the bandwidths that were given in place of those that are known."""

    def of(*names: str) -> Rates | None:
        return next((flat(1e9 * figures[name], "given") for name in names if name in figures), None)

    known = {"gpu", "cpu", "disk", *(device.name.lower() for device in machine.devices)}
    unknown = sorted(set(figures) - known)
    if unknown:
        raise UsageError(
            f"--bandwidth names {unknown[0]!r}, which this machine does not have",
            hint=f"--bandwidth {','.join(sorted(known))}",
        )
    devices = tuple(
        Device(
            device.name,
            device.memory,
            of(device.name.lower(), "gpu") or device.rates,
            device.is_unified,
            device.is_remote,
            device.is_integrated,
        )
        for device in machine.devices
    )
    return Machine(machine.ram, machine.cores, devices, of("cpu") or machine.cpu, of("disk") or machine.disk)


def _bandwidths(text: str | None) -> dict[str, float]:
    figures: dict[str, float] = {}
    for part in () if text is None else text.split(","):
        name, _, number = part.partition("=")
        try:
            figures[name.strip().lower()] = value = float(number)
        except ValueError:
            value = 0.0
        if not (name.strip() and 0 < value < 1e9):
            raise UsageError(f"--bandwidth {part!r} is not NAME=GB/S", hint="--bandwidth gpu=936,cpu=60,disk=3")
    return figures


def _wire(name: str, machine: Machine, models: Models, request: PlacementRequest, plans: list[Plan]) -> dict[str, Any]:
    return {
        "pair": name,
        "machine": {
            "ram": machine.ram,
            "cores": machine.cores,
            "devices": [
                {
                    "name": device.name,
                    "memory": device.memory,
                    "is_unified": device.is_unified,
                    "is_remote": device.is_remote,
                    "basis": machine.rates(device.name).source or "not measured",
                }
                for device in machine.devices
            ],
        },
        "acceptance": {"value": request.acceptance, "basis": "assumed"},
        "chosen": to_wire(plans[0], models),
        "alternatives": [to_wire(one, models) for one in plans[1:]],
    }


def _table(name: str, machine: Machine, models: Models, request: PlacementRequest, plans: list[Plan]) -> str:
    """Return the plans as people read them, the chosen one first."""
    chosen = plans[0]
    places = [CPU, *(device.name for device in machine.devices)]
    free = [f"{size(machine.ram)} RAM", *(f"{size(device.memory)} {device.name}" for device in machine.devices)]
    lines = [f"{name}, context {chosen.context.n_ctx} tokens in {chosen.context.kv_type}; free: {', '.join(free)}", ""]
    rows = [["target", "draft", *(place if place != CPU else "RAM" for place in places), "tok/s"]]
    for one in plans:
        draft = "-" if one.draft is None or models.draft is None else one.draft.tell(models.draft)
        memory = [size(one.use[place].total) if place in one.use else "-" for place in places]
        told = "not measured" if one.tokens_per_s is None else f"{one.tokens_per_s:.3g}"
        rows.append([one.target.tell(models.target), draft, *memory, told])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        text = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(("  ".join(text).rstrip() + ("  <- chosen" if index == 1 else "")).rstrip())
    return "\n".join([*lines, "", *_notes(chosen, request)]) + "\n"


def _notes(chosen: Plan, request: PlacementRequest) -> list[str]:
    draft_threads = f", draft {chosen.draft_threads}" if chosen.draft_threads else ""
    notes = [f"threads {chosen.threads}{draft_threads}" if chosen.threads else "threads: as many as physical cores"]
    if chosen.is_paged:
        notes.append(f"the weights exceed the free memory: each pass reads them from the {DISK}")
    if chosen.tokens_per_s is None:
        notes.append("speeds: not measured (localspec calibrate --machine, or --bandwidth gpu=...,cpu=...)")
        return [*notes, "the order rests on typical bandwidths"]
    if chosen.draft is not None:
        notes.append(f"{chosen.k} draft tokens a pass, each accepted with probability {request.acceptance:g}: assumed")
    return [*notes, f"bandwidths: {chosen.basis}; only the reading of weights and cache is counted"]
