"""Masks on the way through a text, back and forth, are those of a matcher that has walked there alone.

With LOCALSPEC_REAL, a folder of real models, 2 000 places are tried in a large vocabulary, too.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.backends.model import Model
from localspec.engine.constraint import Matched, forced_run
from localspec.errors import UsageError
from localspec.prompt import grammar
from localspec.prompt.form import compiled, form_of
from localspec.prompt.grammar import Grammars, GuidanceMatcher
from localspec.prompt.prompt import Tokenised
from localspec.settings.request import Request
from localspec.settings.structure import choices_text, schema_text
from tests.integration import pair

REAL = Path(os.environ.get("LOCALSPEC_REAL", "/nonexistent"))
PROMPT = [1, 2, 3]
CHOICES = ["yes", "no", "yesterday", "not at all", "november 5", "1", "1789"]
NESTED = {"type": "array", "items": {"type": "object", "properties": {"op": {"enum": ["<", "<="]}}, "required": ["op"]}}
FORMS = (
    Request(schema=schema_text("name, age int, tags[], ok bool")),
    Request(schema='{"type": "string", "maxLength": 9}'),
    Request(schema=json.dumps(NESTED)),
    Request(regex=r"[a-f]{2,5}(-[0-9]+)?"),
    Request(choices=choices_text(",".join(CHOICES))),
    Request(grammar='root ::= "a" [bc]* | "forced text"'),
)


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(pair.TARGET) as opened:
        yield opened


def walk(model: Model, request: Request, n: int, seed: int) -> tuple[int, int]:
    """Compare masks at `n` random places; return at how many the end was allowed, and how many were reached by going
    back."""
    rng, owner, form = random.Random(seed), Grammars(), form_of(request)
    assert form is not None
    one = owner.constraint(request, model, Tokenised(PROMPT))
    assert isinstance(one, Matched)
    grammar, text, ends, backs = compiled(form), list(PROMPT), 0, 0
    for _ in range(n):
        fresh = GuidanceMatcher(owner._tokenizer, grammar, model.n_vocab, form)
        for token in text[len(PROMPT) :]:
            fresh.consume(token)
        allowed = one.allowed(text)
        assert np.array_equal(allowed, fresh.mask())
        if form[0] == "choices":
            said = b"".join(map(model.piece, text[len(PROMPT) :])).lstrip()
            for token in allowed.tolist():
                whole = (said + model.piece(token)).lstrip() if said else model.piece(token).lstrip()
                assert any(choice.encode().startswith(whole) for choice in CHOICES)
        is_end = bool(np.isin(allowed, owner.ends).any())
        ends += is_end
        more = [token for token in allowed.tolist() if not model.is_eog(token)]
        if not more or len(text) > 60 or rng.random() < 0.2:
            backs += 1
            del text[rng.randint(len(PROMPT), len(text)) :]
        elif rng.random() < 0.2:
            forced_run(one, text, 8)  # it looks ahead, and leaves no trace
            one.allowed([*text, rng.choice(more), rng.randrange(model.n_vocab)])
        else:
            text.append(rng.choice(more))
    return ends, backs


@pytest.mark.parametrize("n", range(len(FORMS)))
def test_masks_are_those_of_a_walk_from_the_start(model: Model, n: int) -> None:
    ends, backs = walk(model, FORMS[n], 60, seed=n)
    assert ends or FORMS[n].schema  # a random walk seldom comes to the end of JSON
    assert backs > 5


def test_masks_beyond_those_that_are_kept(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are right too, and their number is bounded."""
    monkeypatch.setattr(grammar, "KNOWN", 2)
    walk(model, FORMS[3], 60, seed=1)
    owner = Grammars()
    matcher = owner._matched(form_of(FORMS[3]), model)._matcher
    for token in (model.tokenize(letter)[-1] for letter in "abcde"):
        matcher.mask()
        assert len(matcher._known) <= 2
        matcher.consume(token)


def test_64_masks_are_kept(model: Model) -> None:
    assert grammar.KNOWN == 64
    matcher = Grammars()._matched(form_of(FORMS[3]), model)._matcher
    first = matcher.mask()
    matcher.consume(model.tokenize("a")[-1])
    assert matcher.mask() is not first
    matcher.rollback(1)
    assert matcher.mask() is first, "it is not read again"


def test_a_mask_that_is_not_dropped_on_the_way_back_is_caught(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Matched.allowed

    def wrong(self: Matched, text: list[int]) -> object:
        kept = dict(self._masks)
        found = right(self, text)
        self._masks = kept | self._masks
        return found

    monkeypatch.setattr(Matched, "allowed", wrong)
    with pytest.raises((AssertionError, UsageError)):  # a wrong mask, or llguidance refuses the token
        walk(model, FORMS[3], 200, 1)


@pytest.mark.skipif(not REAL.is_dir(), reason="LOCALSPEC_REAL names no folder of real models")
def test_two_thousand_places_in_a_large_vocabulary() -> None:
    with Model(REAL / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") as large:
        ends = [walk(large, form, 2000 // len(FORMS) + 1, seed=7 + n)[0] for n, form in enumerate(FORMS)]
    assert all(ends[3:])
