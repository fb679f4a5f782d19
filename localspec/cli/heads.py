"""`localspec heads`: the draft heads that were trained here."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from localspec.cli.console import Console, write_out, write_text
from localspec.cli.fetch import require_yes
from localspec.cli.heads_train import evaluate, train
from localspec.cli.output import write_json
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.errors import LocalspecError, NotFoundError, ResourceError
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.head import HeadInfo
from localspec.models.heads import Head, kept_heads, named_head, read_head
from localspec.sanitize import one_line
from localspec.settings.folders import heads_folder
from localspec.settings.sizes import counted, size
from localspec.ui.columns import aligned


@click.group(cls=CommandGroup, no_args_is_help=False)  # click's help would come as an error of many lines
def heads() -> None:
    """Draft heads for your models: a head guesses tokens from the target's own hidden states.

    A pair with a head is TARGET+HEAD.gguf. TARGET+auto takes the head that was trained here for that file, and
    TARGET+eagle3 the one of this kind.
    """


heads.add_command(train)
heads.add_command(evaluate)


@heads.command("list", cls=Command)
@json_option
@click.pass_obj
def list_heads(console: Console, /, as_json: bool) -> int:
    """List the heads that were trained here.

    The tokens of a pass were counted on held-out text at temperature 0.
    """
    trained, broken = kept_heads()
    rows = [(head.name, head.n_bytes, _figures(head)) for head in trained]
    nothing = f"no heads in {heads_folder()}; localspec heads train TARGET makes one"
    wire = {"folder": str(heads_folder()), "heads": [_wire(head) for head in trained]} if as_json else None
    return list_made(console, rows, broken, nothing, wire)


@heads.command("show", cls=Command)
@click.argument("name", metavar="HEAD")
@json_option
def show_head(name: str, as_json: bool) -> int:
    """Show a head: its kind, the states that it reads, and its training. HEAD is a name from the list, or a file."""
    head = read_head(named_head(name))
    if as_json:
        write_json(_wire(head))
        return 0
    rows = [
        ("file", one_line(str(head.path))),
        ("size", size(head.n_bytes)),
        ("method", f"--method {head.info.kind}"),
        ("reads", _reads(head.info)),
    ]
    if head.tokens:
        rows += [
            ("trained on", f"{counted(head.tokens, 'token')}, {counted(head.steps, 'step')}"),
            ("target", f"the file with the fingerprint {one_line(head.info.trained_for)[:12]}"),
            *((f"first {k}", f"{100 * share:.0f} % accepted") for k, share in enumerate(head.info.accepted, 1)),
        ]
    write_text("\n".join(f"{label:12}{text}" for label, text in rows))
    return 0


@heads.command("rm", cls=Command)
@click.argument("name", metavar="HEAD")
@option("-y", "--yes", is_flag=True, section="Removal", help="Do not ask.")
def remove_head(name: str, yes: bool) -> int:
    """Remove a head that was trained here. HEAD is a name from the list."""
    path = heads_folder() / f"{name}.gguf"
    if named_head(name) != path:
        raise NotFoundError(f"{one_line(name)} is not a head that was trained here", hint="localspec heads list")
    return remove_made(path, name, yes=yes)


def list_made(
    console: Console,
    rows: Sequence[tuple[str, int, str]],
    broken: Iterable[tuple[Path, LocalspecError]],
    nothing: str,
    wire: dict[str, Any] | None,
) -> int:
    for path, error in broken:
        console.warn(f"{one_line(path.name)}: {error.message}")
    if wire is not None:
        write_json(wire)
        return 0
    lines = aligned([(one_line(name), size(n_bytes), about) for name, n_bytes, about in rows], right={1})
    write_text("\n".join(lines or [one_line(nothing)]))
    return 0


def remove_made(path: Path, name: str, *, yes: bool) -> int:
    """Remove a file that was made here and return 0. Raises DeclinedError, and ResourceError where that fails."""
    require_yes("Remove", one_line(name), yes=yes)
    try:
        path.unlink()
    except OSError as error:
        raise ResourceError(f"{one_line(str(path))} cannot be removed: {error.strerror}") from error
    write_out(f"removed {one_line(name)}\n")
    return 0


def _reads(info: HeadInfo) -> str:
    if info.kind == MASKS:
        return f"nothing: the target guesses on {info.n_guesses} mask tokens"
    layers = ", ".join(map(str, info.target_layers))
    states = f"the inputs of the layers {layers}" if layers else "the state after the last norm"
    return f"{states}, {info.target_width} numbers each"


def _figures(head: Head) -> str:
    if not head.info.accepted:
        return head.info.kind
    guesses = counted(len(head.info.accepted), "guess")
    return f"{head.info.kind}  {head.tokens_a_pass:.2f} tokens a pass of {guesses}"


def _wire(head: Head) -> dict[str, Any]:
    return {
        "name": head.name,
        "file": str(head.path),
        "kind": head.info.kind,
        "bytes": head.n_bytes,
        "target_width": head.info.target_width,
        "target_layers": list(head.info.target_layers),
        "target_fingerprint": head.info.trained_for,
        "tokens": head.tokens,
        "steps": head.steps,
        "accepted": list(head.info.accepted),
    }
