"""Names of pairs: what each leads to, when it is looked up, and what is listed."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.errors import NotFoundError
from localspec.models.available import AvailablePair
from localspec.server.fields import ServedPair
from localspec.server.refusal import Refusal
from localspec.server.served_pairs import Pairs, other_names
from tests.server.test_fields import SERVED, served

FIRST = SERVED


def offer(ref: str, name: str = "") -> AvailablePair:
    return AvailablePair(name=name or ref, ref=ref, origin="yours", target_bytes=7, quant="Q4_0", file=Path("x.gguf"))


def answered(each: AvailablePair) -> ServedPair:
    return replace(served(each.ref, other_names(each)), loaded=None)


def named(pairs: Pairs, model: object) -> ServedPair:
    return asyncio.run(pairs.named(model))


@pytest.mark.parametrize("model", [None, "", 5, ["tiny"], "storyteller", "target-q8_0:latest"])
def test_a_request_without_a_name_means_the_first_pair(model: object) -> None:
    looked: list[str] = []
    pairs = Pairs(FIRST, lambda: looked.append("") or [offer("tiny")], answered)  # type: ignore[func-returns-value]
    assert named(pairs, model) is FIRST
    assert not looked, "the disk is read for new names"


def test_a_pair_is_found_by_each_of_its_names_once() -> None:
    found: list[str] = []

    def find(each: AvailablePair) -> ServedPair:
        found.append(each.ref)
        return answered(each)

    pairs = Pairs(FIRST, lambda: [offer("other"), offer("hf:bartowski/Tiny-GGUF", "tiny")], find)
    tiny = named(pairs, "tiny")
    for name in ("tiny:latest", "bartowski/Tiny-GGUF", "hf.co/bartowski/Tiny-GGUF", "hf:bartowski/Tiny-GGUF"):
        assert named(pairs, name) is tiny
    assert tiny.name == "hf:bartowski/Tiny-GGUF"
    assert found == ["hf:bartowski/Tiny-GGUF"]
    assert named(pairs, "other").name == "other"


@pytest.mark.parametrize(
    ("each", "names"),
    [
        (offer("tiny"), ()),
        (offer("tiny", "Tiny model"), ("Tiny model",)),
        (offer("hf:a/b", "b"), ("b", "a/b", "hf.co/a/b")),
        (offer("hf:a/b", "a/b"), ("a/b", "hf.co/a/b")),
    ],
    ids=lambda value: value.ref if isinstance(value, AvailablePair) else "",
)
def test_what_else_a_pair_is_called(each: AvailablePair, names: tuple[str, ...]) -> None:
    assert other_names(each) == names


def test_an_unknown_name_is_the_first_pair_which_tells_how_many_there_are() -> None:
    """Of these the first one is none, whatever program offers it."""
    offers = [offer("tiny"), offer("storyteller"), offer("target-q8_0"), offer("late")]
    pairs = Pairs(FIRST, lambda: offers, answered)
    found = named(pairs, "nonsense")
    assert (found.name, found.others) == ("storyteller", 2)
    assert named(pairs, "storyteller").others == 0
    with pytest.raises(Refusal, match=r"'storyteller' and 2 more, which /v1/models lists"):
        found.require("nonsense")
    alone = named(Pairs(FIRST), "nonsense")
    with pytest.raises(Refusal) as caught:
        alone.require("nonsense")
    assert caught.value.message.endswith("this server has 'storyteller'")


def test_files_that_are_gone_are_refused_and_looked_for_again() -> None:
    is_gone = [True]

    def find(each: AvailablePair) -> ServedPair:
        if is_gone:
            is_gone.clear()
            raise NotFoundError("there is no file tiny.gguf", hint="localspec ls")
        return answered(each)

    pairs = Pairs(FIRST, lambda: [offer("tiny")], find)
    with pytest.raises(Refusal, match=r"there is no file tiny.gguf — try: localspec ls") as caught:
        named(pairs, "tiny")
    assert caught.value.status == 400
    assert named(pairs, "tiny").name == "tiny"


def test_what_is_listed_is_the_first_pair_and_the_others_as_they_were_loaded() -> None:
    before = int(time.time())
    pairs = Pairs(FIRST, lambda: [offer("storyteller"), offer("tiny", "Tiny"), offer("late")], answered)
    first, tiny, late = pairs.listed()
    assert first is FIRST
    assert (tiny.name, tiny.aliases, tiny.bytes, tiny.quant, tiny.loaded) == ("tiny", ("Tiny",), 7, "Q4_0", None)
    assert before <= tiny.created <= time.time()
    settings = named(pairs, "tiny").settings
    assert FIRST.loaded is not None
    loaded = replace(FIRST.loaded, target=replace(FIRST.loaded.target, bytes=99))
    assert pairs.current is FIRST
    pairs.loaded(settings, loaded)
    assert (pairs.current.name, pairs.current.bytes, pairs.current.loaded) == ("tiny", 99, loaded)
    assert pairs.listed() == [FIRST, pairs.current, late]
    assert named(pairs, "tiny") is pairs.current
    pairs.loaded(FIRST.settings, loaded)
    assert (pairs.current.name, named(pairs, None)) == ("storyteller", pairs.current)
    pairs.loaded(replace(settings, ctx=5), loaded)
    assert pairs.current.name == "storyteller", "that pair has no name here"
