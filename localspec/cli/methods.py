"""`localspec methods`: what can draft, in which shape, how long, and who judges. Read from the registers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import click

from localspec.cli.console import Console, write_out
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.control import LENGTHS
from localspec.methods import MethodInfo, describe, resolve
from localspec.options import Option
from localspec.trees import TREES
from localspec.verify import VERIFIERS

_AXES = (("--tree", TREES), ("--length", LENGTHS), ("--verify", VERIFIERS))


@click.command(cls=Command)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def methods(console: Console, /, as_json: bool) -> int:
    """List what can draft, in which shape, how long, and by which rule it is judged.

    The four are independent; localspec run refuses what does not go together and names what does.
    """
    if as_json:
        write_json(
            {
                "methods": [dataclasses.asdict(info) for info in describe()],
                **{name.removeprefix("--"): _summaries(register) for name, register in _AXES},
            }
        )
    else:
        write_out(_listing())
    return 0


def _summaries(register: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return name and summary of every class in a register: the summary is its docstring's first paragraph."""
    found = []
    for name, path in register.items():
        doc = inspect.cleandoc(resolve(path).__doc__ or "")
        found.append({"name": name, "summary": " ".join(doc.partition("\n\n")[0].split())})
    return found


def _listing() -> str:
    formatter = click.HelpFormatter(width=100)
    with formatter.section("--method"):
        rows = []
        for info in describe():
            rows.append((info.name, _about(info)))
            rows += [(f"  -o {option.name}={option.default}", _option(option)) for option in info.options]
        formatter.write_dl(rows)
    for name, register in _AXES:
        with formatter.section(name):
            formatter.write_dl([(entry["name"], entry["summary"]) for entry in _summaries(register)])
    return formatter.getvalue().removeprefix("\n")


def _option(option: Option) -> str:
    return f"{option.help} ({option.range})"


def _about(info: MethodInfo) -> str:
    needs = f"; needs {info.needs}" if info.needs not in ("", "nothing") else ""
    paper = f" (arXiv {info.paper})" if info.paper else ""
    lossy = "" if info.is_lossless else "; NOT exact"
    return f"{info.summary}{paper}{needs}{lossy}"
