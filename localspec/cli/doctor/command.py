"""The command: findings as lines or as one object, about the installation or about a pair."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.doctor.checks import examine
from localspec.cli.option_sources import typed
from localspec.cli.options import ReportOptions, pair_options, picked, report_options
from localspec.cli.output import write_json
from localspec.cli.params import Command, Positive, option
from localspec.cli.settings import PairOptions, promised_settings, rpc_servers
from localspec.cli.settings_table import check_file
from localspec.errors import UsageError

OUTPUT = "Output"
WITHOUT_PAIR = {"rpc", "json", "quiet", "color"}


@dataclass(frozen=True)
class DoctorOptions(ReportOptions):
    """Values of the options that are no settings."""

    seconds: float
    as_json: bool


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[PAIR]", shell_complete=pair_names)
@option("--seconds", type=Positive(86400), default=60.0, metavar="SEC", section="What",
        help="How long to measure a pair, loading apart.  [default: 60]")  # fmt: skip
@pair_options
@option("--json", "as_json", is_flag=True, section=OUTPUT, help="One JSON object.")
@report_options
@click.pass_context
def doctor(ctx: click.Context, /, words: tuple[str, ...], **values: Any) -> int:
    """Check this installation, or find out why speculation is slow on PAIR.

    Without PAIR: llama.cpp's build, GPUs, RPC servers, memory, disk and terminal. Each problem comes with the command
    to type. The exit code is 0 unless something is broken: 2 for config.toml, 3 if llama.cpp does not load, 4 if a
    server does not answer.

    With PAIR: passes of both models are timed. Acceptance is measured at temperature 0 and 0.8, with the chat template
    and without (± is two standard errors). Then auto races plain decoding, without a seed. The verdict comes first,
    then a line for each possible cause, with its number. The exit code is 0 whatever is found.
    """
    console: Console = ctx.obj
    options = picked(DoctorOptions, values)
    options.apply(console)
    if len(words) > 1:
        raise UsageError(f"one pair at a time: {len(words)} were given", hint="localspec doctor TARGET+DRAFT")
    if words:
        _warn_of_settings(console)
        from localspec.cli.doctor.pair import examine_pair
        from localspec.cli.fetch import present_settings

        settings = present_settings(promised_settings(PairOptions.of(values, words[0])), console)
        return examine_pair(console, settings, options.seconds, options.log_file, as_json=options.as_json)
    for given in typed(ctx):
        if given.key not in WITHOUT_PAIR:
            spelt = f"--{given.key}"
            raise UsageError(f"{spelt} is about a pair, and none is named", hint=f"localspec doctor PAIR {spelt}")
    return _installation(console, rpc_servers(values["rpc"]), as_json=options.as_json)


def _warn_of_settings(console: Console) -> None:
    """Tell what is wrong with config.toml, which was left out."""
    try:
        check_file()
    except UsageError as error:
        console.warn(f"{error.message}; nothing of the file is used")


def _installation(console: Console, endpoints: tuple[str, ...], *, as_json: bool) -> int:
    findings = []
    for one in examine(endpoints):
        findings.append(one)
        if not as_json:
            write_out(one.line(console, sys.stdout))
    code = next((one.code for one in findings if one.code), 0)
    if as_json:
        write_json({"ok": not code, "checks": [one.to_wire() for one in findings]})
    return code
