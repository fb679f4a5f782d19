"""A target on another machine, in the place of a loaded one: its vocabulary is here, and each pass is a round trip.

It evaluates nothing, so it has no rows: verdicts come from `remote.judge`, and whatever reads rows is refused. What
others ask of a backend it answers as its verifier would.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.backends.batch import not_cancelled
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.memory import ContextShape
from localspec.backends.options import LoadOptions
from localspec.backends.tokenizer import sample_tokens
from localspec.engine.constraint import Constraint
from localspec.engine.draft import Draft, Verdict
from localspec.engine.events import Committed, Event, Finished
from localspec.engine.judge import Mark
from localspec.engine.protocols import Cancel, Capabilities, RandomSource, Rows, Tokens
from localspec.engine.randomness import SeededRandom
from localspec.engine.sampling import Sampler
from localspec.errors import IncompatibleError, ResourceError, UsageError
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.prompt.form import form_of
from localspec.prompt.prompt import Tokenised, special_texts
from localspec.remote.ahead import DraftingOn
from localspec.remote.channel import Channel
from localspec.remote.connection import Address, Connection
from localspec.remote.hard import NLL, is_unsure, matters
from localspec.remote.judge import RemoteJudge
from localspec.remote.messages import VERSION, Bye, Facts, Hello
from localspec.remote.modes import MODES, RULES, QuantisedSampler
from localspec.remote.vocabulary import look
from localspec.session.loaded_model import LoadedModel, closed_on_error
from localspec.session.placement import InspectedModel
from localspec.settings.request import LoadSettings, Request
from localspec.speculation import registered
from localspec.speculation.resolve import Axes

PINGS = 3  # of which the fastest counts
FIRST_TIMED = 2  # tokens that it begins with
LONGEST_TIMED = 256  # tokens of the text behind which passes are timed


class VocabularyModel(Model):
    """A target's file without its weights."""

    def __init__(self, looked: InspectedModel) -> None:
        super().__init__(looked.info.path, LoadOptions(gpu="off"), shape=ContextShape(0, 0, 1))
        self.n_ctx_train = looked.info.n_ctx_train

    def prepare_weights(self, params: Any) -> None:
        params.vocab_only = True


class WatchingJudge(RemoteJudge):
    """A judge that counts which of the tokens it is asked about are hard for the draft. `text_of` spells a token."""

    def __init__(self, *parts: Any, text_of: Callable[[int], bytes]) -> None:
        super().__init__(*parts)
        self._text_of = text_of
        self._looked = self._hard = 0

    def verdict(self, draft: Draft, tokens: Sequence[int], mark: Mark) -> tuple[Verdict, Rows]:
        for node in range(1, len(draft.tokens)):
            dist, token = draft.dists[node], int(draft.tokens[node])
            share = draft.shares[node] if draft.shares and dist is None else 1.0
            if dist is None and share == 1.0:
                continue  # a copy, or a draft that was drawn without chance
            self._looked += 1
            is_doubtful = is_unsure(token, dist.belief) if dist is not None else -math.log(share) > NLL
            self._hard += is_doubtful or matters(self._text_of(token).decode("utf-8", "replace"))
        return super().verdict(draft, tokens, mark)

    def counted(self) -> tuple[int, int]:
        """Return how many were looked at since this was asked before, and how many of them are hard."""
        counts, self._looked, self._hard = (self._looked, self._hard), 0, 0
        return counts


class RemoteTarget(LlamaBackend):
    """What a verifier holds, behind `channel`. `facts` are its own, `rtt` the seconds of a round trip with no pass."""

    def __init__(self, model: Model, channel: Channel, facts: Facts, rtt: float) -> None:
        self.model = model
        self.options = LoadOptions()
        self.channel = channel
        self.facts = facts
        self.rtt = rtt
        self.evaluated = 0
        self.cancel: Cancel = not_cancelled
        self.kv_bytes = 0
        self.threads = 0
        self._judge: WatchingJudge | None = None  # of the last answer
        self._timing: RemoteJudge | None = None  # of the text behind which passes are timed
        self._text: list[int] = []
        self.capabilities = Capabilities(
            can_rollback=facts.max_rows > 1,
            max_leaves=facts.max_leaves,
            max_rows=facts.max_rows,
            n_ctx=facts.n_ctx,
            n_vocab=model.n_vocab,
            # Prices hold for one way there: what is learned is kept by its length, to the next power of two.
            devices=(f"{channel.connection.address.name}, {2 ** math.ceil(math.log2(max(1e3 * rtt, 1)))} ms away",),
        )

    @staticmethod
    def drafting_sampler(axes: Axes) -> type[Sampler]:
        """Return the sampler of drafts: of one whose distributions are sent, what is drawn from is what is sent."""
        return QuantisedSampler if mode_for(axes) in ("scalar-q", "sparse-q") else Sampler

    @staticmethod
    def require(axes: Axes, request: Request) -> None:
        """Raise IncompatibleError for what reads the target's rows or states, which an edge has not."""
        method = registered("method")[axes.method].info
        what = f"--method {axes.method}" if method.reads_rows or method.has_derived_draft else ""
        what = what or (f"--verify {axes.verify}" if not axes.verifier.is_lossless else "")
        what = what or ("--logprobs" if request.logprobs is not None else "")
        if what:
            message = f"{what} needs the target's own rows, and these stay with its verifier"
            raise IncompatibleError(message, hint=f"leave out {what}, or --verifier")

    @property
    def length(self) -> int:
        return 0

    def cached(self, tokens: Tokens) -> int:
        return len(tokens) - 1

    def truncate(self, length: int) -> None:
        self._timing = None

    def lengthen(self, n_ctx: int) -> None:
        """Raise ResourceError: the verifier has the context that it has."""
        raise ResourceError(f"the verifier's context has {self.capabilities.n_ctx} tokens")

    def time_rows(self, rows: int) -> float:
        """Return the seconds of a round with a draft of `rows` - 1 tokens, the way included. Raises Cancelled."""
        if self._timing is None:
            hello = Hello(VERSION, self.facts.vocabulary, mode="ids", verify="match")
            parts = self.channel, hello, self.capabilities, RULES["match"], SeededRandom(0)
            self._timing, self._text = RemoteJudge(*parts, is_timing=True), []
        judge, text = self._timing, self._text
        if not text:  # untimed: it is read whole
            text += sample_tokens(self.model, 0, FIRST_TIMED).tolist()
            text.append(judge.start(Draft.root(text[-1]), text, lambda: None, self.cancel)[0].token)
        drafted = sample_tokens(self.model, len(text), rows - 1).tolist()
        draft = Draft.of([text[-1], *drafted], range(-1, rows - 1))
        began = time.perf_counter()
        verdict, _ = judge.verdict(draft, text, lambda: None)
        seconds = time.perf_counter() - began
        run = [*drafted[: len(verdict.path)], verdict.token]
        text += run
        if len(text) > LONGEST_TIMED or any(map(self.model.is_eog, run)):
            text.clear()
        return seconds

    def judge(
        self,
        axes: Axes,
        request: Request,
        seed: int,
        prompt: Tokenised,
        rng: RandomSource,
        constraint: Constraint | None,
        meantime: DraftingOn | None,
    ) -> RemoteJudge:
        """Return what judges the drafts of one answer. Raises UsageError for a rule that no verifier has."""
        form, marks = form_of(request), prompt.marks
        hello = Hello(
            VERSION,
            self.facts.vocabulary,
            self.facts.model,
            mode=mode_for(axes),
            verify=axes.verify.partition(":")[0],
            seed=seed,
            sampling=request.sampling,
            max_tokens=request.max_tokens,
            stops=(*request.stop, *prompt.stops),
            form=form,
            marks=None if marks is None else (marks.start, marks.end, marks.skip, marks.is_open),
        )
        self._timing = None  # the channel has one session at a time
        self.channel.taken()
        rule = axes.verifier
        self._judge = WatchingJudge(
            self.channel, hello, self.capabilities, rule, rng, constraint, meantime, text_of=self.model.piece
        )
        return self._judge

    def completed(self, event: Event) -> Event:
        if isinstance(event, Committed) and self._judge is not None:
            looked, hard = self._judge.counted()
            ahead, ready = (0, 0) if (meantime := self._judge.meantime) is None else meantime.judged()
            share = (event.position + len(event.out)) / self.capabilities.n_ctx
            trip = replace(
                self.channel.taken(), n_looked=looked, n_hard=hard, n_ahead=ahead, n_ready=ready, share=share
            )
            return replace(event, way=trip)
        if isinstance(event, Finished):
            self.channel.send(Bye())
        return event

    def close(self) -> None:
        self.channel.close()


def mode_for(axes: Axes) -> str:
    """Return the first mode that has the rule: they stand from the fewest bytes to the most."""
    rule = axes.verify.partition(":")[0]
    return next(name for name, mode in MODES.items() if not mode.rules or rule in mode.rules)


def address_of(settings: LoadSettings) -> Address:
    assert settings.verifier is not None
    return Address(settings.verifier, settings.verifier_key_file, settings.verifier_ca)


def require_edge(settings: LoadSettings, draft: ModelInfo | None) -> None:
    """Raise UsageError or IncompatibleError for settings that an edge cannot obey."""
    if draft is not None and draft.head is not None:
        message = f"{draft.label} is a head: it reads the states of the target, which stay with the verifier"
        raise IncompatibleError(message, hint="-m MODEL.gguf, or no model at all: copies are drafted then")
    if settings.lora or settings.reproducible or settings.ctx is not None:
        flag = "--lora" if settings.lora else "--reproducible" if settings.reproducible else "--ctx"
        raise UsageError(f"{flag} is the verifier's to decide", hint=f"localspec serve {flag} ... on its machine")


def inspect_vocabulary(settings: LoadSettings) -> InspectedModel:
    """Read the header of a target's file without its weights; people know it by where it is."""
    header = read_model(Path(settings.target))
    info = model_info(header, needs_weights=False)
    return InspectedModel(header, replace(info, known_as=f"at {address_of(settings).name}"))


def open_remote(
    settings: LoadSettings, looked: InspectedModel, cancel: Cancel, tell: Callable[[Event], None]
) -> LoadedModel:
    """Return a verifier's target. Raises NetworkError, or IncompatibleError where it holds another by now."""
    began = time.perf_counter()
    channel = Channel(Connection.open(address_of(settings)), cancel, tell)
    with closed_on_error(channel):
        facts, rtt = look(channel.connection), math.inf
        for _ in range(PINGS):
            asked = time.perf_counter()
            look(channel.connection)
            rtt = min(rtt, time.perf_counter() - asked)
        if Path(settings.target).stem != facts.vocabulary:
            message = f"the verifier at {channel.connection.address.name} holds another model by now: {facts.name}"
            raise IncompatibleError(message, hint="Start again.")
        model = VocabularyModel(looked)
    info = replace(looked.info, name=facts.name, n_params=facts.n_params, bytes=facts.bytes)
    backend = RemoteTarget(model, channel, facts, rtt)
    return LoadedModel(info, model, backend, special_texts(model), 1e3 * (time.perf_counter() - began))
