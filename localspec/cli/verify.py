"""`localspec verify`: the user's own check that speculation changes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from localspec.bench.losslessness import Check, Verification
from localspec.bench.suites import choose, load_suite
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import present_settings
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    ReportOptions,
    collected,
    declared_option,
    model_options,
    picked,
    report_options,
    sampling_options,
    speculation_options,
)
from localspec.cli.output import write_json
from localspec.cli.pair_engine import PairEngine, open_engine
from localspec.cli.params import Command, json_option, option
from localspec.cli.settings import PairOptions, promised_settings
from localspec.cli.signals import Stop
from localspec.errors import DIFFERS, LocalspecError, UsageError
from localspec.sanitize import one_line
from localspec.settings.declaration import Group
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.ui.settings import check

SCHEMA = "localspec.verify/1"
CHECKED, OUTPUT = Group("Check"), "Output"


@dataclass(frozen=True)
class VerifyOptions(ReportOptions):
    suite: str
    column: str | None
    prompts: int
    max_tokens: int
    draws: int
    as_json: bool


@click.command("verify", cls=Command)
@click.argument("pair", required=False, shell_complete=pair_names)
@option("--suite", default="stories", metavar="NAME|FILE", section=CHECKED.title,
        help="Prompts, as in localspec bench; they are continued as they are.  [default: stories]")  # fmt: skip
@option("--column", metavar="NAME", section=CHECKED.title, help="The field of a line that holds the prompt.")
@option("--prompts", is_own=True, type=Integer(1, 1000), default=4, metavar="N", section=CHECKED.title,
        help="How many, spread over the suite.  [default: 4]")  # fmt: skip
@declared_option(Request, "max_tokens", group=CHECKED, default=64, default_help="")
@option("--draws", type=Integer(100, 10**7), default=2000, metavar="N", section=CHECKED.title,
        help="Draws on each recorded text.  [default: 2000]")  # fmt: skip
@model_options
@speculation_options
@sampling_options
@json_option
@report_options
@click.pass_obj
def verify(console: Console, /, pair: str | None, **values: Any) -> int:
    """Check that speculation changes nothing on PAIR.

    There are three checks. The first two compare texts with plain decoding, at temperature 0 and with coupled noise at
    --temp. They accept a fork only if the two tokens' scores are within twice the measured rounding of that text. The
    third draws thousands of tokens by the rule on recorded rows, and tests them for the target's distribution by
    chi-square.

    In these checks --method auto drafts in every pass, with the draft model or with copies of the text. --method suffix
    checks copies beside a draft model.

    With --reproducible one check replaces the first two. It compares the texts of the method, of auto and of suffix
    with plain decoding at both temperatures, and accepts no fork.

    The exit code is 10 if the output changes, 2 if a check cannot run.
    """
    options = picked(VerifyOptions, values)
    options.apply(console)
    promised = promised_settings(PairOptions.of(values, pair))
    asked = _drafting(collected(Speculation, values), has_draft=promised.settings.draft is not None)
    request = Request(max_tokens=options.max_tokens, sampling=collected(Sampling, values), speculation=asked)
    if request.sampling.temperature == 0.0:
        raise UsageError("--temp 0 leaves no distribution to test: greedy texts are compared anyway", hint="--temp 0.8")
    check(request, promised.settings)
    check(replace(request, speculation=replace(request.speculation, verify="coupled")), promised.settings)
    prompts = choose(load_suite(options.suite, options.column), options.prompts).prompts
    settings = present_settings(promised, console)
    checks, error, stop = _checked(settings, request, prompts, options, console)
    is_passed = all(check.is_passed for check in checks)
    is_failed = any(check.is_failed for check in checks)
    is_complete = error is None and not stop.is_asked
    if options.as_json:
        done = {"passed": is_passed and is_complete, "is_complete": is_complete}
        write_json({"schema": SCHEMA, "pair": settings.name, **done, "checks": [check.to_wire() for check in checks]})
        console.on_error = None  # the one object is this
    elif is_failed or (is_complete and is_passed):
        write_out(_verdict(request, one_line(settings.name), is_passed))
    if error is not None and not is_failed:
        raise error
    if error is not None:
        console.warn(f"not all was checked: {error.message}")
    obstacle = next((check.obstacle for check in checks if check.obstacle), None)
    if obstacle is not None and not (is_failed or stop.is_asked):
        raise obstacle
    return stop.exit_code or (DIFFERS if is_failed else 0)


def _drafting(asked: Speculation, *, has_draft: bool) -> Speculation:
    """Return the method to check: for `auto`, which drafts only where that pays, what it would draft with. Raises
    UsageError where nothing drafts: plain decoding is what all else is compared with."""
    if asked.method == "plain" or asked.k == 0:
        raise UsageError("no method drafts, so there is nothing to verify", hint="leave out --method and -k")
    if asked.method != "auto":
        return asked
    return replace(asked, method="draft-model" if has_draft else "suffix")


def _checked(
    settings: LoadSettings, request: Request, prompts: Any, options: VerifyOptions, console: Console
) -> tuple[list[Check], LocalspecError | None, Stop]:
    """Return every check that was finished, each told when it is, and what ended them early. Raises that where there is
    none."""
    checks = list[Check]()
    with open_engine(console, options.log_file) as engine:
        try:
            for check in _run(engine, settings, request, prompts, options.draws):
                checks.append(check)
                engine.live.erase()
                if not options.as_json:
                    write_out(_told(check))
        except LocalspecError as error:  # what was checked before it counts
            if not checks:
                raise
            return checks, error, engine.stop
    return checks, None, engine.stop


def _run(engine: PairEngine, settings: LoadSettings, request: Request, prompts: Any, draws: int) -> Iterator[Check]:
    if engine.load(settings) is None:
        return
    verification = Verification(
        engine,
        request,
        prompts,
        draws=draws,
        is_reproducible=settings.reproducible,
        is_stopped=engine.is_stopped,
        on_progress=engine.live.status,
    )
    yield from verification.run()


def _told(check: Check) -> str:
    notes = "".join(f"         {one_line(note)}\n" for note in check.notes)
    word = "ok  " if check.is_passed else "FAIL" if check.is_failed else "--  "
    return f"{word} {check.name:<13}{check.summary}\n{notes}"


def _verdict(request: Request, pair: str, is_passed: bool) -> str:
    rule = request.speculation.verify
    if is_passed:
        method = request.speculation.method
        return f"lossless here with --method {method}: the output of {pair} has the target's distribution\n"
    lossy = " by design: see localspec explain" if request.speculation.approximate else ", which is a bug: report it"
    return f"NOT lossless: --verify {rule} changed the output of {pair}{lossy}\n"
