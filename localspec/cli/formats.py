"""The options that ask for JSON, and what it tells beside the text.

Apart from the lines themselves, whose fields take as long to import as all of these options.
"""

from dataclasses import dataclass, replace
from functools import partial

from localspec.cli.option_sources import Integer
from localspec.cli.params import option, stacked
from localspec.errors import UsageError
from localspec.settings.request import MOST_LOGPROBS, Request


@dataclass(frozen=True)
class FormatOptions:
    as_json: bool
    as_events: bool
    logprobs: int | None
    is_after_sampler: bool

    def check_format(self) -> None:
        if self.as_json and self.as_events:
            raise UsageError("--json and --events exclude each other", hint="leave one of them out")
        form = "--json" if self.as_json else "--events" if self.as_events else ""
        if self.is_after_sampler and self.logprobs is None:
            hint = f"{form or '--json'} --logprobs 0 --post-sampling"
            raise UsageError("--post-sampling says how --logprobs are told", hint=hint)
        if self.logprobs is not None and not form:
            rest = f"--logprobs {self.logprobs}{' --post-sampling' if self.is_after_sampler else ''}"
            raise UsageError("--logprobs needs an output that has them", hint=f"--json {rest}, or --events {rest}")

    def telling(self, request: Request) -> Request:
        logprobs, is_after = self.logprobs, self.is_after_sampler
        return replace(request, details=self.as_events, logprobs=logprobs, is_after_sampler=is_after)


_add = partial(option, section="Output")
format_options = stacked(
    [
        _add("--json", "as_json", is_flag=True, help="One JSON object at the end."),
        _add(
            "--events",
            "as_events",
            is_flag=True,
            help="Lines of JSON as it goes: start, load, prefill, step, probe, warn, end or error.",
        ),
        _add(
            "--logprobs",
            type=Integer(0, MOST_LOGPROBS),
            metavar="N",
            help="In JSON, the log-probability of each token, and the N likeliest at its place.",
        ),
        _add(
            "--post-sampling",
            "is_after_sampler",
            is_flag=True,
            help="Log-probabilities after the sampler, not the model's own.",
        ),
    ]
)
