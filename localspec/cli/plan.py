"""`localspec plan`: which draft pays, whether the model fits, and what goes where, here or on a described machine."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from localspec.bench.answers import survey
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.draft_fit import suggestions
from localspec.cli.fetch import headers_of, is_offline, warn_of_local
from localspec.cli.option_sources import Integer, Number
from localspec.cli.options import declared_option, draft_option, picked
from localspec.cli.output import lone_stop, write_json
from localspec.cli.pair_engine import open_engine
from localspec.cli.params import Command, json_option, option
from localspec.cli.plan_table import Loads, brief, fitting, judgements, layers_on_disk, plan_text, to_wire, verdict
from localspec.cli.settings import model_and_draft, named_pair, rpc_servers
from localspec.control.chain import Worth
from localspec.errors import IncompatibleError, ResourceError, UsageError
from localspec.models.candidates import local_drafts, look_at
from localspec.models.catalog import load_catalog
from localspec.models.gguf.info import model_info
from localspec.models.low_bit import best_copy
from localspec.models.names import Alias, DraftChoice, HubName, ModelName, PairName, parse
from localspec.models.plan import calibration
from localspec.models.plan.compare import PlannedDraft, compare
from localspec.models.plan.estimate import estimate
from localspec.models.plan.layout_search import ACCEPTANCE, PlacementRequest
from localspec.models.plan.machine import CPU, Machine, MachineDevice, Rates, flat
from localspec.models.plan.models import ModelPart, Models
from localspec.models.store import DEFAULT, NotCachedError, PairRef, is_kind, locate, parse_pair
from localspec.models.worth import pair_models, worth
from localspec.settings.declaration import Group, declaration
from localspec.settings.folders import cache_folder
from localspec.settings.jobs import SurveyRequest
from localspec.settings.lone_jobs import MachineFacts
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import read_size
from localspec.worker.lone_jobs import ask

_PLAN, _MACHINE = Group("Plan"), Group("Machine (this one, unless these options describe another)")
ABOUT = (
    "An estimate: these files are not on this machine. Sizes are those of the catalogue, shapes those of models as "
    "large. After localspec pull NAME the plan is exact."
)
FROM_HEADERS = "These files are not on this machine. The plan is made from their headers, which the hub sent."


@dataclass(frozen=True, slots=True)
class Options:
    draft: str | None = None
    ctx: int | None = None
    kv_type: str = "f16"
    acceptance: float = ACCEPTANCE
    vram: str | None = None
    ram: str | None = None
    unified: bool = False
    threads: int | None = None
    bandwidth: str | None = None
    rpc: str | None = None

    @property
    def is_another_machine(self) -> bool:
        described = (self.vram, self.ram, self.bandwidth, self.rpc)
        return self.unified or any(value is not None for value in described)


@click.command(cls=Command)
@click.argument("pair", shell_complete=pair_names)
@draft_option(_PLAN)
@declared_option(LoadSettings, "ctx", group=_PLAN)
@declared_option(
    LoadSettings,
    "kv_type",
    group=_PLAN,
    choices=("auto", *declaration(LoadSettings, "kv_type").choices),
    help="Type of the attention cache; auto may take q8_0, which changes the distribution a little.",
)
@option("--acceptance", type=Number(0, 1), default=ACCEPTANCE, metavar="P", section=_PLAN.title,
        help=f"Assumed probability that a draft token is accepted.  [default: {ACCEPTANCE}]")  # fmt: skip
@option("--vram", metavar="SIZE,...", section=_MACHINE.title,
        help="Free memory of each GPU: 24G or 24G,8G; 0 for none.")  # fmt: skip
@option("--ram", metavar="SIZE", section=_MACHINE.title, help="Free main memory: 64G.")
@option("--unified", is_flag=True, section=_MACHINE.title, help="The GPU's memory is main memory, as on Apple silicon.")
@declared_option(LoadSettings, "threads", group=_MACHINE, help="Physical cores.")
@option(
    "--bandwidth",
    metavar="GB/S",
    section=_MACHINE.title,
    help="Memory bandwidths to predict from, in GB/s: gpu=936,cpu=60,disk=3; gpu0=, gpu1= for one of several.",
)
@declared_option(LoadSettings, "rpc", group=_MACHINE)
@option("--measure", is_flag=True, section=_PLAN.title, help="Load the pair with each draft here, and time its passes.")
@option("--seconds", type=Number(0, 86400, is_above=True), default=5.0, metavar="SEC", section=_PLAN.title,
        help="Time for the passes with one draft, loading apart.  [default: 5]")  # fmt: skip
@option(
    "--limit", type=Integer(), hidden=True, expose_value=False, section=_PLAN.title
)  # of 0.1.0: config.toml may have it
@option("--hub", is_flag=True, section=_PLAN.title, help="Look for drafts in the catalogue and on the hub too.")
@option("--offline", is_flag=True, section=_PLAN.title, help="Only files on this machine, and the catalogue.")
@json_option
@click.pass_obj
def plan(
    console: Console,
    /,
    pair: str,
    as_json: bool,
    offline: bool,
    hub: bool,
    measure: bool,
    seconds: float,
    **values: Any,
) -> int:
    """Say whether a draft makes PAIR faster, whether it fits into memory, and where its parts would be placed.

    A draft is a small model or head that guesses tokens, which the target then checks in one pass. The first line says
    whether one pays, the second whether the model fits. Then comes a table of plans, the fastest first, and a line for
    each draft. Where no draft is named, every one on this machine that fits is compared.

    Speeds are predicted from bandwidths (localspec calibrate --machine, or --bandwidth) and from the acceptance, the
    share of guesses that are right. It comes from the training of a head, from the first load of a draft model, or is
    assumed. Without bandwidths there is an order and no number.

    --measure loads the pair with each draft, counts what is accepted on sample texts, and times passes. The figures are
    kept: later plans, --method auto and TARGET+auto go by them.

    --hub looks for drafts that are not here, too, and says which fit. Only their headers are read, some megabytes each.

    With a GPU or an RPC server, --gpu auto loads by this plan. A draft that was named is never left out. If
    drafting with a copy of the target in fewer bits beats plain decoding, the plan shows it too: localspec drafts make.

    For files that are not downloaded yet, only the headers are read from the hub: some megabytes. Offline, a pair of
    the catalogue is planned from the sizes there, which are approximate.
    """
    options = picked(Options, values)
    if measure and options.is_another_machine:
        raise UsageError("--measure tries this machine, and another one is described", hint="leave out --measure")
    target, head = pair.partition("+")[0], ""
    lines, candidates = suggestions(console, target, is_offline(offline)) if hub else ([], [])
    try:
        named = model_and_draft(named_pair(None, pair), options.draft)
        parsed = parse_pair(*named)
        typed = _named(*named)
        paths = _paths(parsed, "" if typed == "auto" else typed)
        if measure:
            code = _measure(console, parsed.target, paths, options, seconds)
            if code and as_json:
                lone_stop(code)
            if code:
                return code
        name, (drafts, loaded, worths) = parsed.name, _drafts_here(parsed, paths)
    except NotCachedError as missing:
        if measure:
            raise
        typed = _named(*named)
        name, parts = pair, _not_here(missing, is_offline(offline), console)
        head = FROM_HEADERS if all(part.info for part in parts) else ABOUT
        warn_of_local(missing, "localspec plan", console)
        named_draft = str(missing.pair.draft)
        drafts = {named_draft if part else "": pair_models(parts[0], part)[0] for part in (None, *parts[1:])}
        loaded, worths = [*drafts][-1], {}
    machine = _machine(options)
    request = PlacementRequest(options.ctx, options.kv_type, acceptance=options.acceptance, threads=options.threads)
    worths = {} if options.is_another_machine or (options.threads is not None and not measure) else worths
    rows = compare(machine, drafts, request, worths)
    copy = None if options.draft is not None else best_copy(machine, drafts, request, rows[0])
    can_measure = not (head or measure or options.is_another_machine)
    why = "as auto chooses" if typed == "auto" else "for it is named"
    if not typed:
        why = "for it belongs to that name" if loaded else "for none is named"
    loads = Loads(loaded, worths, why, target, can_measure, typed == "none", len(drafts) > 1)
    if as_json:
        made = None if copy is None else {"draft_name": copy.name, **to_wire(copy)}
        facts: dict[str, Any] = {"loaded_draft": loaded or None, "copy_to_make": made, "is_about": head == ABOUT}
        facts |= {"candidates": candidates} if hub else {}
        write_json({**_wire(name, machine, request, rows, loads), **facts})
    else:
        write_out(plan_text(machine, request, rows, loads, copy, [*lines, *filter(None, [head])]))
    return 0


def _measure(console: Console, target: Path, paths: Mapping[str, Path], options: Options, seconds: float) -> int:
    kv_type = "f16" if options.kv_type == "auto" else options.kv_type
    settings = LoadSettings(str(target), ctx=options.ctx, threads=options.threads, kv_type=kv_type)
    with open_engine(console, None) as engine:

        def progress(what: str, share: float) -> None:
            work = f"timing passes of the {what}" if what in ("target", "draft") else "guessing sample texts"
            engine.live.status(f"{brief(name)}: {work}, {share:.0%} done")

        for name, path in paths.items():
            try:
                if engine.load(replace(settings, draft=str(path))) is None:
                    break
                report = survey(engine, SurveyRequest(seconds, is_kept=True), progress)
            except (IncompatibleError, ResourceError) as error:
                console.warn(f"{brief(name)} is not measured: {error.message}")
                continue
            if report is not None and not report.content["profile"]["is_kept"]:
                folder = Path(report.content["profile"]["file"]).parent
                console.warn(f"{folder} cannot be written, so nothing of {brief(name)} is kept")
    return engine.stop.exit_code


def _named(model: str | None, draft: str | None) -> str:
    return str(parse(model).draft) if draft is None and model is not None else draft or ""


def _paths(pair: PairRef, typed: str) -> dict[str, Path]:
    paths = {} if typed else local_drafts(look_at(pair.target))
    if pair.draft is not None and pair.draft not in paths.values():
        paths[typed or pair.draft.name] = pair.draft
    return paths


def _drafts_here(pair: PairRef, paths: Mapping[str, Path]) -> tuple[dict[str, Models], str, dict[str, Worth]]:
    target = look_at(pair.target)
    loaded = next((name for name, path in paths.items() if path == pair.draft), "")
    parts = {name: pair_models(target, look_at(path, may_be_head=True)) for name, path in paths.items()}
    worths = {name: worth(*part) for name, part in parts.items()}
    drafts = {"": pair_models(target)[0], **{name: models for name, (models, _) in parts.items()}}
    return drafts, loaded, {name: worth for name, worth in worths.items() if worth.is_timed}


def _not_here(missing: NotCachedError, offline: bool, console: Console) -> list[ModelPart]:
    """Return target and draft of a pair that is not all here: by the headers on the hub, or by the catalogue. Raises
    `missing` where neither tells enough."""
    headers, why = headers_of(missing, offline=offline, console=console)
    catalog = load_catalog()

    def part(name: ModelName, *, as_draft: bool = False) -> ModelPart:
        if name not in missing.wanted:
            here = locate(PairName(Alias(DEFAULT), name) if as_draft else PairName(name))
            return look_at(here.draft if as_draft and here.draft else here.target, may_be_head=as_draft)
        if isinstance(name, HubName) and name in headers:
            return ModelPart.of(headers[name], model_info(headers[name], may_be_head=as_draft))
        about = estimate(name, catalog) if isinstance(name, HubName) else None
        if about is None:
            missing.message += "" if offline else f", and its header cannot be read: {why}"
            raise missing
        return ModelPart(about.anatomy, about.model.context)

    draft, parts = missing.pair.draft, [part(missing.pair.target)]
    if not isinstance(draft, DraftChoice) and not is_kind(draft):  # a head is found by its target's file
        parts.append(part(draft, as_draft=True))
    if not offline and not headers:
        console.warn(f"{why}; the catalogue's sizes are taken")
    return parts


def this_machine() -> Machine:
    return _machine(Options())


def _machine(options: Options) -> Machine:
    figures = _bandwidths(options.bandwidth)
    sizes = [] if options.vram is None else [read_size("--vram", text) for text in options.vram.split(",")]
    vram = tuple(MachineDevice(f"GPU{i}", n, is_unified=options.unified) for i, n in enumerate(sizes) if n)
    ram = None if options.ram is None else read_size("--ram", options.ram)
    if sizes and ram is not None and options.rpc is None:
        return _with_figures(Machine(ram, options.threads or 0, vram), figures)
    facts = ask(MachineFacts(rpc_servers(options.rpc)))
    measured = calibration.load(cache_folder("machine"))

    def rates(device: dict[str, Any]) -> Rates | None:
        return None if measured is None else measured.rates(device["name"], device["description"])

    devices = tuple(
        MachineDevice(row["name"], row["free"], rates(row), row["is_unified"], row["is_remote"], row["is_integrated"])
        for row in facts["all"]
        if row["takes_layers"]
    )
    if sizes:
        devices = (*vram, *(row for row in devices if row.is_remote))
    ram = facts["ram"] if ram is None else ram
    if ram is None:
        raise UsageError("the system does not say how much memory is free", hint="--ram 16G")
    cpu = next((rates(row) for row in facts["all"] if row["name"] == CPU), None)
    return _with_figures(Machine(ram, options.threads or facts["cores"], devices, cpu), figures)


def _with_figures(machine: Machine, figures: dict[str, float]) -> Machine:
    def of(*names: str) -> Rates | None:
        return next((flat(1e9 * figures[name], "given") for name in names if name in figures), None)

    known = {"gpu", "cpu", "disk", *(device.name.lower() for device in machine.devices)}
    unknown = sorted(set(figures) - known)
    if unknown:
        message = f"--bandwidth names {unknown[0]!r}, which this machine does not have"
        raise UsageError(message, hint=f"--bandwidth {','.join(sorted(known))}")
    devices = tuple(replace(each, rates=of(each.name.lower(), "gpu") or each.rates) for each in machine.devices)
    return replace(machine, devices=devices, cpu=of("cpu") or machine.cpu, disk=of("disk") or machine.disk)


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


def _wire(
    name: str, machine: Machine, request: PlacementRequest, rows: list[PlannedDraft], loads: Loads
) -> dict[str, Any]:
    judged = judgements(rows, request, loads.worths)
    plans = [
        {
            "draft_name": row.name or None,
            "has_other_vocabulary": row.models.guessing.is_foreign,
            "acceptance": {
                "value": row.models.guessing.chances(request.acceptance)[0],
                "basis": row.models.guessing.how if row.models.guessing.accepted else "assumed",
            },
            **to_wire(row),
            "worth": None if row.plan.draft is None else judged[row.name].to_wire(),
        }
        for row in rows
    ]
    return {
        "pair": name,
        "verdict": verdict(judged, loads),
        "fits": fitting(machine, rows[0]),
        "layers_on_disk": layers_on_disk(machine, rows[0]),
        "seconds_per_token": rows[0].plan.seconds,
        "machine": {
            "ram": machine.ram,
            "cores": machine.cores,
            "devices": [
                {
                    **{name: getattr(device, name) for name in ("name", "memory", "is_unified", "is_remote")},
                    "basis": machine.rates(device.name).source or "not measured",
                }
                for device in machine.devices
            ],
        },
        "acceptance": plans[0]["acceptance"],
        "chosen": plans[0],
        "alternatives": plans[1:],
    }
