"""The form of an answer, kept by llguidance: its masks are the law, whatever other engines would allow.

Tokens are judged by the mask and nothing else: llguidance's matcher also takes tokens that its mask does not hold, and
a refused one breaks it for good. End tokens are never given to it, since it does not count them in a rollback.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from localspec.backends.model import Model
from localspec.engine.constraint import NOTHING, Constraint, Matched
from localspec.engine.distribution import Ids
from localspec.errors import UsageError
from localspec.prompt.after_reasoning import AfterReasoning
from localspec.prompt.form import compiled, form_of, limits, refused
from localspec.prompt.held_calls import HeldCalls, HeldForm, held_form, schemas_of, spelled_for
from localspec.prompt.prompt import Tokenised, template_text
from localspec.settings.request import Request

if TYPE_CHECKING:
    import llguidance


KNOWN = 64  # masks that are kept by their bits: inside a string they are few


class _Vocabulary:
    """The tokens of a model as llguidance reads them; those that stand for structure are never text."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.ends = [token for token in range(model.n_vocab) if model.is_eog(token)]
        special = {*self.ends, *filter(model.is_parsed, range(model.n_vocab))}
        self.special_token_ids = sorted(special)
        self.tokens = [
            b"\xff" + model.piece(token, special=True) if token in special else model.piece(token)
            for token in range(model.n_vocab)
        ]
        self.eos_token_id = self.ends[0] if self.ends else None
        self.bos_token_id = model.special.bos

    def __call__(self, text: bytes) -> list[int]:
        return self._model.tokenize(text)


class Grammars:
    """The constraints of one model; its vocabulary is read for the first of them. The last grammar is kept. `ends` are
    the tokens that end a text. Calls of tools are held to their schemas unless `holds_calls` is False: a verifier on
    another machine knows of no tools."""

    def __init__(self, *, holds_calls: bool = True) -> None:
        self._holds_calls = holds_calls
        self.ends: Ids = NOTHING
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._last: tuple[tuple[str, str], GuidanceMatcher, Matched] | None = None

    def constraint(self, request: Request, model: Model, prompt: Tokenised) -> Constraint | None:
        """Return what keeps the answer's form, None where it has none; raises UsageError for one that cannot be kept.
        Where the model reasons, the answer is what comes after that. With tools and a schema, an answer is a call or
        JSON of the schema."""
        form = form_of(request)
        if request.tools and not request.must_call and self._holds_calls:
            held = held_form(template_text(request, model))
            if held is not None and form is None:
                return self._calls(request, model, prompt, held)
            if held is not None and form is not None and form[0] == "schema":
                form = "grammar", held.grammar(spelled_for(model), schemas_of(request.tools), or_json=form[1])
        if form is None:
            return None
        inner, begin = self._matched(form, model), len(prompt.tokens)
        if prompt.marks is None:
            inner.begin_at(begin)
            return inner
        free = np.setdiff1d(np.arange(model.n_vocab, dtype=np.int32), self.ends)
        tokenize, piece = partial(model.tokenize, parse_special=True), partial(model.piece, special=True)
        return AfterReasoning(inner, begin, prompt.marks, tokenize, piece, free)

    def _calls(self, request: Request, model: Model, prompt: Tokenised, held: HeldForm) -> HeldCalls:
        """Return the constraint on calls alone. Its grammar is compiled once a call begins: most answers have none."""

        def matched() -> Matched:
            lark = held.grammar(spelled_for(model), schemas_of(request.tools))
            inner = self._matched(("grammar", lark), model)
            inner.begin_at(0)
            return inner

        tokenize = partial(model.tokenize, parse_special=True)
        piece = partial(model.piece, special=True)
        return HeldCalls(len(prompt.tokens), held.mark, piece, tokenize, matched, prompt.marks)

    def apart(self, request: Request, model: Model, prompt: Tokenised) -> Constraint | None:
        """Return a constraint that no other answer of the same form shares: several are written in turns."""
        self._last = None
        constraint = self.constraint(request, model, prompt)
        self._last = None
        return constraint

    def _matched(self, form: tuple[str, str], model: Model) -> Matched:
        if self._last is None or self._last[0] != form or self._last[1].has_failed:
            grammar = compiled(form)
            if self._tokenizer is None:
                self._tokenizer = self._read(model)
            matcher = GuidanceMatcher(self._tokenizer, grammar, model.n_vocab, form)
            self._last = form, matcher, Matched(matcher, model.is_eog)
        return self._last[2]

    def _read(self, model: Model) -> llguidance.LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper

        words = _Vocabulary(model)
        if not words.ends:
            raise UsageError("this model has no token that ends a text, so no answer has a form", hint="another model")
        self.ends = np.array(words.ends, np.int32)
        slices = LLTokenizer.json_slices()
        return LLTokenizer(TokenizerWrapper(words), n_vocab=model.n_vocab, eos_token=words.ends, slices=slices)


class GuidanceMatcher:
    """One text on its way through a grammar (`engine.constraint.Matcher`)."""

    def __init__(self, tokenizer: llguidance.LLTokenizer, grammar: str, n_vocab: int, form: tuple[str, str]) -> None:
        from llguidance import LLMatcher

        self._form = form
        self._n_vocab = n_vocab
        self._bits = np.zeros((n_vocab + 31) // 32, np.int32)
        self._known: dict[bytes, Ids] = {}
        self._matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits())
        self._check()

    def mask(self) -> Ids:
        """Return the tokens that may follow; raises UsageError where the grammar is too complex, or nothing may."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = self._bits.tobytes()
        ids = self._known.get(bits)
        if ids is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            held = np.unpackbits(self._bits.view(np.uint8), count=self._n_vocab, bitorder="little")
            ids = self._known[bits] = held.view(np.bool_).nonzero()[0].astype(np.int32)
        if not ids.size:
            raise refused(self._form[0], "nothing may follow here", self._form[1])
        return ids

    def consume(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def rollback(self, n: int) -> None:
        """Step back over the last `n` tokens. The next mask tells whether that could be done."""
        self._matcher.rollback(n)

    @property
    def has_failed(self) -> bool:
        return bool(self._matcher.is_error())

    def _check(self) -> None:
        if self.has_failed:
            raise refused(self._form[0], self._matcher.get_error(), self._form[1])
