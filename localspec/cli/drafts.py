"""`localspec drafts`: copies of a model in fewer bits, which draft for it or, in four bits, for larger ones."""

import shlex
from dataclasses import dataclass
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.heads import list_made, remove_made
from localspec.cli.heads_train import made, read_texts
from localspec.cli.option_sources import Integer
from localspec.cli.options import declared_option
from localspec.cli.output import write_json
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.cli.plan import this_machine
from localspec.errors import DeclinedError
from localspec.models.exit_files import n_layers, require_prunable
from localspec.models.gguf.draft_kinds import LOW_BIT
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import BITS, LowBitCopy, dropped_layers, kept_copies, kinds, named_copy, planned_copy
from localspec.models.plan.compare import compare
from localspec.models.plan.layout_search import PlacementRequest
from localspec.models.plan.machine import Machine
from localspec.models.plan.models import ModelPart, placed
from localspec.models.store import find_model
from localspec.sanitize import one_line
from localspec.settings.folders import cache_folder, drafts_folder
from localspec.settings.lone_jobs import CopyOptions
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import duration, size

COPY, OUTPUT = "Copy", "Output"
MATRIX_TOKENS = 4096


@click.group(cls=CommandGroup, no_args_is_help=False)  # click's help would come as an error of many lines
def drafts() -> None:
    """Copies of a model in fewer bits, which draft.

    In two or three bits a copy drafts for its own model, if there is a GPU that does not hold the whole model. That
    pair is TARGET+low-bit. TARGET+auto takes such a copy if it was predicted to pay, unless a smaller model is here.

    In four bits a copy of a small model drafts for larger ones on a processor. TARGET+auto takes it in the place of
    its model.
    """


@dataclass(frozen=True, slots=True)
class Predicted:
    """The mix of types to make, and how fast drafting with the copy is predicted to be over plain decoding."""

    kind: str
    gain: float
    is_measured: bool

    @property
    def doubt(self) -> str:
        return "" if self.is_measured else " by the bandwidths of machines like this one"


@drafts.command(cls=Command)
@click.argument("target", shell_complete=pair_names)
@option("--bits", is_own=True, type=click.Choice(BITS), default="2", section=COPY,
        help="Of a weight; mixed: three at either end, else two; 4: for a small model.  [default: 2]")  # fmt: skip
@option("--skip", is_own=True, metavar="LAYERS", section=COPY, help="Leave out these layers, counted from 0: 30-39.")
@option("--prompts", is_own=True, metavar="FILE", section=COPY,
        help="A prompt a line, or JSONL, to be read.  [default: those that come with localspec]")  # fmt: skip
@option("--raw", is_flag=True, is_own=True, section=COPY, help="The prompts are read without a chat template.")
@option("--tokens", is_own=True, type=Integer(0, 10**7), default=MATRIX_TOKENS, metavar="N", section=COPY,
        help=f"Tokens of them; 0 makes the copy without a matrix.  [default: {MATRIX_TOKENS}]")  # fmt: skip
@option("--force", is_flag=True, is_own=True, section=COPY, help="Make it even where it is predicted not to pay.")
@declared_option(LoadSettings, "threads")
@declared_option(LoadSettings, "gpu")
@json_option
@click.pass_obj
def make(
    console: Console,
    /,
    target: str,
    bits: str,
    skip: str | None,
    tokens: int,
    force: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Make a copy of TARGET in fewer bits, a pair's name or a GGUF file.

    The target reads prompts first. Weights that meet large inputs there are rounded with more care (an importance
    matrix). The same command again resumes a run that was ended.

    The copy has the target's vocabulary. It pays if it fits on the GPU and the whole target does not. On a processor a
    pass of it takes longer than one of the target, so there it is refused, with the predicted speed.

    With --bits 4, TARGET is a small model that drafts for larger ones. A pass of its copy takes less time on a
    processor, and its guesses are nearly those of the model.
    """
    path = find_model(target).absolute()
    header = read_model(path)
    info = model_info(header)
    if skip is not None:
        require_prunable(header)
    dropped = () if skip is None else dropped_layers(skip, n_layers(header))
    prediction = predicted(this_machine(), ModelPart.of(header, info), bits, len(dropped)) if bits != "4" else None
    if prediction is not None and prediction.gain <= 1.0 and not force:
        raise DeclinedError(
            f"a copy of {one_line(target)} in fewer bits would not pay here: "
            f"drafting with it is predicted at {prediction.gain:.2f} of plain decoding{prediction.doubt}",
            hint="--force makes it all the same; localspec plan TARGET --vram 24G tells of another machine"
            + ("" if prediction.is_measured else "; localspec calibrate --machine measures this one"),
            detail={"predicted": prediction.gain, "is_measured": prediction.is_measured},
        )
    prompts, is_raw = values.pop("prompts"), values.pop("raw")
    texts: dict[str, Any] = read_texts(prompts, is_raw=is_raw, info=info) if tokens else {}
    folder, pays = str(cache_folder("importance")), prediction is None or prediction.gain > 1.0
    kind = kinds(bits)[0] if prediction is None else prediction.kind
    options = CopyOptions(str(path), folder, bits, kind, dropped, tokens=tokens, pays=pays, **texts, **values)
    done = list(made(console, options, _status, "making the copy ended", "with what was read"))[-1]
    if done["warning"]:
        console.warn(done["warning"])
    if as_json:
        forecast = {} if prediction is None else {"predicted": prediction.gain, "is_measured": prediction.is_measured}
        write_json({**done, **forecast})
    else:
        copy, share = one_line(done["path"]), 100 * done["bytes"] / done["target_bytes"]
        pair = f"{one_line(target)}+{LOW_BIT}" if prediction is not None else f"TARGET+{shlex.quote(copy)}"
        write_out(f"{copy}: {done['kind']}, {size(done['bytes'])}, {share:.0f} % of its model\n")
        write_out(f"try: localspec race {pair} PROMPT\n")
    return 0


def predicted(machine: Machine, target: ModelPart, bits: str, n_dropped: int) -> Predicted:
    request = PlacementRequest()
    predictions = []
    for kind in kinds(bits):
        rows = compare(machine, {"": placed(target), LOW_BIT: planned_copy(target, bits, kind, n_dropped)}, request)
        drafting = [row.plan.seconds for row in rows if row.plan.draft is not None]
        plain = min(row.plan.seconds for row in rows if row.plan.draft is None)
        is_measured = all(row.plan.tokens_per_s is not None for row in rows)
        predictions.append(Predicted(kind, plain / min(drafting) if drafting else 0.0, is_measured))
    return max(predictions, key=lambda prediction: prediction.gain)


@drafts.command("list", cls=Command)
@json_option
@click.pass_obj
def list_drafts(console: Console, /, as_json: bool) -> int:
    """List the copies that were made here."""
    copies, broken = kept_copies()
    rows = [(copy.name, copy.n_bytes, _told(copy)) for copy in copies]
    nothing = f"no copies in {drafts_folder()}; localspec drafts make TARGET makes one"
    wire = {"folder": str(drafts_folder()), "drafts": [_wire(copy) for copy in copies]} if as_json else None
    return list_made(console, rows, broken, nothing, wire)


@drafts.command("rm", cls=Command)
@click.argument("name", metavar="COPY")
@option("-y", "--yes", is_flag=True, section="Removal", help="Do not ask.")
def remove_draft(name: str, yes: bool) -> int:
    """Remove a copy that was made here. COPY is a name from the list."""
    return remove_made(named_copy(name), name, yes=yes)


def _status(event: dict[str, Any]) -> str:
    if event["stage"] == "matrix":
        return f"importance: {event['tokens']} of {event['of']} tokens, {duration(event['seconds_left'])} left"
    return f"quantising: {100 * event.get('share', 1.0):.0f} %"


def _told(copy: LowBitCopy) -> str:
    cut = f", {copy.layers} of {copy.n_layers} layers" if copy.layers != copy.n_layers else ""
    return f"{one_line(copy.kind)}{cut}, {'with' if copy.has_matrix else 'without'} importance matrix"


def _wire(copy: LowBitCopy) -> dict[str, Any]:
    facts = {name: getattr(copy, name) for name in ("layers", "n_layers", "has_matrix")}
    about = {"name": copy.name, "file": str(copy.path), "kind": copy.kind, "bytes": copy.n_bytes}
    return {**about, **facts, "was_predicted_to_pay": copy.pays, "target_fingerprint": copy.target}
