"""The command: findings as lines or as one object."""

from __future__ import annotations

import sys

import click

from localspec.cli.console import Console, one_line, write_out
from localspec.cli.doctor.checks import examine
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.cli.settings import servers

MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "broken": ("BROKEN", "red")}


@click.command(cls=Command)
@option("--rpc", metavar="HOST:PORT,...", section="What", help="RPC servers that should answer.")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def doctor(console: Console, /, rpc: str | None, as_json: bool) -> int:
    """Check this installation: llama.cpp's build, GPUs it could use, RPC servers, memory, disk, terminal.

    What could be better comes with the line to type. The exit code is 0 unless something is broken: 3 where llama.cpp
    does not load, 4 where a server does not answer.
    """
    findings = []
    for one in examine(servers(rpc)):
        findings.append(one)
        if not as_json:
            mark, style = MARKS[one.state]
            write_out(f"{console.paint(f'{mark:<7}', style, sys.stdout)} {one.name:<9} {one_line(one.message)}\n")
            if one.hint:
                write_out(f"{'':<17} try: {one_line(one.hint)}\n")
    code = next((one.code for one in findings if one.code), 0)
    if as_json:
        write_json({"ok": not code, "checks": [one.to_wire() for one in findings]})
    return code
