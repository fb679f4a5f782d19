"""`localspec methods`: the methods, tree shapes, length rules and verifiers, read from the registers."""

from __future__ import annotations

from itertools import product

import click

from localspec.cli.console import Console, write_out
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.ui.explain import AXES, Facts, facts, spelled

USES = {"everyday": "", "laboratory": ", laboratory: no gain was measured on a real model or a named device"}


@click.command(cls=Command)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def methods(console: Console, /, as_json: bool) -> int:
    """List drafting methods, tree shapes, length rules and verifiers.

    First stand those for every day, with which a gain was measured; the others are for the laboratory.

    The four are independent. localspec run refuses a combination that does not work and names one that does. localspec
    explain NAME tells more about each.
    """
    if as_json:
        listed = {axis: [entry.to_wire() for entry in facts(axis)] for axis in AXES}
        write_json({"methods": listed.pop("method"), **listed})
    else:
        write_out(_listing())
    return 0


def _listing() -> str:
    formatter = click.HelpFormatter(width=100)
    for axis, use in product(AXES, USES):
        with formatter.section(f"--{axis}{USES[use]}"):
            rows = []
            for entry in (one for one in facts(axis) if one.mark_of_use == use):
                rows.append((entry.name, about(entry)))
                mark = "-o " if axis == "method" else ""
                rows += [(f"  {mark}{spelled(one)}", f"{one.help} ({one.range})") for one in entry.options]
                if entry.argument:
                    rows.append((f"  {entry.usage.split()[-1]}", entry.argument))
            formatter.write_dl(rows, col_max=34)
    return formatter.getvalue().removeprefix("\n")


def about(entry: Facts) -> str:
    """Return one line: what it does, where it comes from, what it needs, whether it is exact."""
    papers = f" (arXiv {', '.join(entry.papers)})" if entry.papers else ""
    needs = f"; needs {entry.needs}" if entry.axis == "method" and entry.needs != "nothing" else ""
    exact = "" if entry.axis in ("tree", "length") else "; lossless" if entry.is_lossless else "; NOT lossless"
    return f"{entry.summary.rstrip('.')}{papers}{needs}{exact}"
