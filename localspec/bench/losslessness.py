"""`localspec verify`: does speculation change anything on this pair, this build, this machine?

    greedy    at temperature 0 the text is plain decoding's, token by token
    coupled   with one seed it is so at any temperature
    distribution       the rule's draws on rows recorded from both models have the target's distribution

With --reproducible the first two are one check, and no text may fork:

    reproducible   at temperature 0 and above it the text is plain decoding's, whatever drafts

Else a text may fork where rounding decides between two tokens; such forks are measured and told, and are no failure.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from localspec.bench.answers import PLAIN, MeasuringWorker, Same, ask, compare_answers, inspect
from localspec.bench.suites import Prompt
from localspec.errors import PromptTooLongError, UsageError
from localspec.lossless.chi_square import POWER, detectable, survival
from localspec.settings.jobs import DistributionQuestion
from localspec.settings.request import Request, Speculation
from localspec.settings.sizes import counted

ERROR = 1e-4  # of the whole distribution check: how often a right rule would fail it
TOGETHER = ERROR / 4  # of all texts together, whose statistic is above this by chance up to twice as often
OTHERS = (Speculation(), Speculation(method="suffix"))  # what --reproducible is checked with beside what was asked
DISTRIBUTION = "distribution"
_WIRE = {DISTRIBUTION: "law"}  # its name in JSON, which earlier versions have set
POINTS = 2  # recorded texts for each prompt


@dataclass(frozen=True, slots=True)
class ComparedText:
    """One prompt answered both ways."""

    prompt: str
    temperature: float
    method: str
    same: Same


@dataclass(slots=True)
class Comparison:
    """Texts that were compared, the tokens that were drafted for them, and what to say of prompts without one."""

    texts: list[ComparedText] = field(default_factory=list)
    drafted: int = 0
    accepted: int = 0
    left_out: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Check:
    """One of them, finished. `notes` are for people, `facts` for programs.

    `obstacle` says why it could not run, None where it did: neither passed nor failed.
    """

    name: str
    is_passed: bool
    summary: str
    notes: tuple[str, ...]
    facts: dict[str, Any]
    obstacle: UsageError | None = None

    @property
    def is_failed(self) -> bool:
        return not self.is_passed and self.obstacle is None

    def to_wire(self) -> dict[str, Any]:
        name, ran = _WIRE.get(self.name, self.name), self.obstacle is None
        return {"check": name, "ran": ran, "passed": self.is_passed, "summary": self.summary, **self.facts}


@dataclass
class Verification:
    """Runs the checks. `request` has everything but the prompt; its temperature is that of the last two.

    `is_reproducible`: the engine was loaded so.

    A prompt that does not fit the context is left out of all of them, which the first says.
    """

    worker: MeasuringWorker
    request: Request
    prompts: tuple[Prompt, ...]
    draws: int
    is_stopped: Callable[[], bool]
    on_progress: Callable[[str], None]
    is_reproducible: bool = False

    @cached_property
    def seed(self) -> int:
        asked = self.request.sampling.seed
        return secrets.randbits(32) if asked is None else asked

    def run(self) -> Iterator[Check]:
        texts = (self.reproducible,) if self.is_reproducible else (self.greedy, self.coupled)
        for check in (*texts, self.distribution):
            done = check()
            if self.is_stopped():
                return
            yield done

    def greedy(self) -> Check:
        return self._identity("greedy", 0.0, self.request.speculation)

    def coupled(self) -> Check:
        speculation = replace(self.request.speculation, verify="coupled")
        return self._identity("coupled", self.request.sampling.temperature, speculation)

    def reproducible(self) -> Check:
        temperatures = (0.0, self.request.sampling.temperature)
        made = self._compared("reproducible", temperatures, (self.request.speculation, *OTHERS))
        if not made.drafted:
            why = "nothing was drafted, so the texts show nothing"
            return _not_run("reproducible", why, "-n 256", made.left_out)
        named = [
            (f"prompt {each.prompt}, --temp {each.temperature:g}, --method {each.method}", each.same)
            for each in made.texts
        ]
        notes = [f"{what}: {same.spelt()}" for what, same in named if not same.is_equal]
        summary = f"{len(named) - len(notes)} of {len(named)} texts identical; {counted(made.drafted, 'token')} drafted"
        texts = [{"id": what, **same.to_wire()} for what, same in named]
        facts = {"drafted": made.drafted, "prompts": texts, "left_out": made.left_out}
        return Check("reproducible", not notes, summary, (*made.left_out, *notes), facts)

    def distribution(self) -> Check:
        alpha = ERROR / 2 / (len(self.prompts) * POINTS)  # half for the texts alone, half for all of them together
        trials: list[dict[str, Any]] = []
        n_unknown = 0
        for number, prompt in enumerate(self.prompts):
            if self.is_stopped():
                break
            self.on_progress(f"{DISTRIBUTION}, prompt {number + 1} of {len(self.prompts)}")
            asked = replace(self.request, prompt=prompt.text)
            seed = (self.seed + number * POINTS * self.draws) % 2**64  # no two draws of all texts share their noise
            plain = ask(self.worker, replace(asked, speculation=PLAIN, sampling=replace(asked.sampling, seed=seed)))
            if self.is_stopped():
                break
            points = tuple(tuple(plain.tokens[: len(plain.tokens) * i // POINTS]) for i in range(POINTS))
            unseeded = replace(asked, sampling=replace(asked.sampling, seed=None))
            question = DistributionQuestion(unseeded, points, self.draws, alpha, seed)
            tested = inspect(self.worker, question)
            trials, n_unknown = trials + tested.get("trials", []), n_unknown + tested.get("n_unknown", 0)
        if not trials and n_unknown:
            why = "the recorded texts hold tokens that the draft does not have"
            return _not_run(DISTRIBUTION, why, "another --suite")
        if not trials:
            why = "the context has no room for the recorded texts"
            return _not_run(DISTRIBUTION, why, "--ctx 2048, or shorter prompts")
        if not any(trial["df"] or trial["impossible"] for trial in trials):
            why = "so many draws tell no two tokens of the recorded texts apart"
            return _not_run(DISTRIBUTION, why, f"--draws {10 * self.draws}, or a higher --temp")
        return _judged(trials, alpha)

    def _identity(self, name: str, temperature: float, speculation: Speculation) -> Check:
        # Greedy texts need no noise, and a seed would turn `auto` into the coupled rule, which is the next check.
        made = self._compared(name, (temperature,), (speculation,), is_seeded=name == "coupled")
        if not made.drafted:
            why = f"nothing was drafted, so the {name} texts show nothing"
            hint = "--method draft-model, or -n 256 with prompts that repeat themselves"
            return _not_run(name, why, hint, made.left_out)
        texts = made.texts
        equal = sum(each.same.is_equal for each in texts)
        ties = sum(each.same.is_explained for each in texts) - equal
        summary = f"{equal} of {len(texts)} texts identical" + (f", {ties} fork at a tie" if ties else "")
        summary += f"; {made.accepted} of {made.drafted} draft tokens accepted"
        prompts = [{"id": each.prompt, **each.same.to_wire()} for each in texts]
        facts = {"drafted": made.drafted, "accepted": made.accepted, "prompts": prompts, "left_out": made.left_out}
        notes = [f"prompt {each.prompt}: {each.same.spelt()}" for each in texts if not each.same.is_equal]
        return Check(name, equal + ties == len(texts), summary, (*made.left_out, *notes), facts)

    def _compared(
        self, name: str, temperatures: Sequence[float], others: Sequence[Speculation], *, is_seeded: bool = True
    ) -> Comparison:
        """Answer every prompt plainly and with each of `others`, at each temperature, until a stop is asked."""
        made = Comparison()
        for number, prompt in enumerate(prompts := self.prompts):
            self.on_progress(f"{name}, prompt {number + 1} of {len(prompts)}")
            seed = (self.seed + number) % 2**64 if is_seeded else None
            for temperature in temperatures:
                sampling = replace(self.request.sampling, temperature=temperature, seed=seed)
                asked = replace(self.request, prompt=prompt.text, sampling=sampling)
                try:
                    plain = ask(self.worker, replace(asked, speculation=PLAIN))
                except PromptTooLongError as error:
                    made.left_out.append(self._left_out(prompt, error))
                    break
                for speculation in dict.fromkeys(others):
                    if self.is_stopped():
                        return made
                    other = ask(self.worker, replace(asked, speculation=speculation))
                    made.drafted += other.stats.drafted
                    made.accepted += other.stats.accepted
                    same = compare_answers(self.worker, plain, other)
                    made.texts.append(ComparedText(prompt.id, temperature, speculation.method, same))
        return made

    def _left_out(self, prompt: Prompt, error: PromptTooLongError) -> str:
        """Go on without a prompt, and return what to say of that; raises `error` where it was the last."""
        self.prompts = tuple(other for other in self.prompts if other is not prompt)
        if not self.prompts:
            raise error
        return f"prompt {prompt.id} was left out: {error.message}"


def _not_run(name: str, why: str, hint: str, left_out: Sequence[str] = ()) -> Check:
    """Return a check that shows nothing here; the others may."""
    return Check(name, False, why, tuple(left_out), {"left_out": list(left_out)}, UsageError(why, hint=hint))


def _judged(trials: list[dict[str, Any]], alpha: float) -> Check:
    """Return the distribution check: each text by itself, which finds what is wrong in one place, and all together."""
    failed = [trial for trial in trials if trial["p_value"] < alpha]
    n_certain = sum(not trial["df"] for trial in trials)
    df, drawn = sum(trial["df"] for trial in trials), sum(trial["n"] for trial in trials)
    telling = sum(trial["n"] for trial in trials if trial["df"])
    together = survival(sum(trial["statistic"] for trial in trials), df) if df else 1.0
    least = detectable(df, telling, TOGETHER)
    power = f"a bias of {least:.3f} in total variation would be found with {POWER:.0%}"
    notes = [f"error at most {ERROR:g}; {power} where all texts have it"]
    notes += [f"{n_certain} of them have one token that so many draws can tell, and show nothing"] if n_certain else []
    notes += [_failed(trial) for trial in failed]
    notes += [f"all texts together: p = {together:.2g}"] if together < TOGETHER else []
    summary = f"{len(trials) - len(failed)} of {len(trials)} recorded texts, {drawn} draws"
    facts = {"error": ERROR, "power": POWER, "detectable": least, "p_value": together, "trials": trials}
    is_passed = bool(trials) and not failed and together >= TOGETHER
    return Check(DISTRIBUTION, is_passed, summary, tuple(notes), facts)


def _failed(trial: dict[str, Any]) -> str:
    impossible = f", {trial['impossible']} draws that the target excludes" if trial["impossible"] else ""
    return (
        f"at position {trial['position']}: chi-square {trial['statistic']:.1f} with {trial['df']} degrees of freedom, "
        f"p = {trial['p_value']:.2g}{impossible}"
    )
