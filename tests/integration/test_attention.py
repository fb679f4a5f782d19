"""Kinds of attention: the text they are timed in is as long as it says, and prices follow from the times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.options import LoadOptions
from localspec.control.attention import KINDS, READING, ROWS, AttentionTimes
from localspec.engine import events
from localspec.engine.protocols import Cancelled
from localspec.session import attention
from localspec.session.attention import AttentionPrice, DeepText, _file, depths_of, differs, settled, time_attention
from localspec.settings.jobs import SurveyRequest
from localspec.settings.request import LoadSettings, Request, Sampling
from tests.integration import pair
from tests.integration.gguf_models import TINY, never, random_gguf

OPTIONS = LoadOptions(n_ctx=1024, threads=2)


@pytest.fixture
def model() -> Iterator[Model]:
    with Model(random_gguf(TINY), OPTIONS) as model:
        yield model


def times(*ratios: float, depth: int = 1000, reading: float = 1.0) -> AttentionTimes:
    """Return times whose rounds have these ratios of mixed to off, at two depths; reading has one of its own."""
    pace = [1.0 + 0.3 * (n % 3) for n in range(len(ratios))]  # of a machine that does not keep it
    off = {at: dict.fromkeys(ROWS, pace) for at in (256, depth)}
    mixed = [one * ratio for one, ratio in zip(pace, ratios, strict=True)]
    read = [one * reading for one in pace]
    return AttentionTimes({"off": off, "mixed": {at: {**dict.fromkeys(ROWS, mixed), READING: read} for at in off}})


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_has_every_position_once(model: Model, kind: str) -> None:
    text = DeepText(model, replace(OPTIONS, flash_attn=kind))
    for depth in (5, 100, 701):
        text.deepen(depth)
        assert api.llama_memory_seq_pos_max(text._memory, 0) == depth - 1
        text.time(4)
        assert api.llama_memory_seq_pos_max(text._memory, 0) == depth - 1
    text.close()


def test_all_kinds_are_timed_in_turns(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[int, int]] = []
    time = DeepText.time

    def noted(text: DeepText, rows: int) -> float:
        order.append((id(text), rows))
        return time(text, rows)

    monkeypatch.setattr(DeepText, "time", noted)
    run = events.Returning(time_attention(model, OPTIONS, (64, 300), (1, 4, READING), never, (3, 1)))
    assert list(run)[-1] == 1.0
    found = run.result
    for kind in KINDS:
        lengths = {at: {n: len(takes) for n, takes in rows.items()} for at, rows in found.seconds[kind].items()}
        assert lengths == {at: {1: 6, 4: 6, READING: 2} for at in (64, 300)}
    assert AttentionTimes.from_wire(found.to_wire()) == found
    texts = [text for text, rows in order if rows == 1][:12]  # of the first set of contexts
    assert texts == [*texts[:3], *texts[:3], *texts[2::-1], *texts[:3]], "warmed up, then to and fro"


@pytest.mark.parametrize("change", [("off", []), ("mixed", {}), ("mixed", {"64": {"1": [0.0]}}), ("off", None)])
def test_times_that_are_none_are_refused(change: tuple[str, object]) -> None:
    wire = {kind: {"64": {"1": [1.0]}} for kind in KINDS}
    with pytest.raises((AttributeError, TypeError, ValueError)):
        AttentionTimes.from_wire({**wire, change[0]: change[1]})


def test_a_stop_ends_the_timing(model: Model) -> None:
    with pytest.raises(Cancelled):
        list(time_attention(model, OPTIONS, (64,), (1,), lambda: True))


@pytest.mark.parametrize(
    ("found", "n_ctx", "best"),
    [
        pytest.param(times(*[1.0] * 5), 1000, "mixed", id="free"),
        pytest.param(times(1.0, 1.0, 1.0, 1.0, 1.4, 1.0, 1.0), 1000, "mixed", id="disturbed once"),
        pytest.param(times(0.9, 0.98, 1.0, 1.02, 1.1, 1.15, 1.0), 1000, "off", id="spread too far"),
        pytest.param(times(*[1.04] * 7), 1000, "off", id="4 %"),
        pytest.param(times(*[1.0] * 7, reading=1.5), 1000, "off", id="reading is dear"),
        pytest.param(times(*[1.0] * 7), 4096, "off", id="not measured so deep"),
        pytest.param(AttentionTimes({}), 1000, "off", id="not measured"),
    ],
)
def test_exact_rows_are_the_default_where_they_surely_cost_nothing(
    found: AttentionTimes, n_ctx: int, best: str
) -> None:
    assert found.best(n_ctx) == best


def test_a_machine_that_changes_pace_changes_no_price() -> None:
    one = times(*[1.5] * 7).ratio("mixed", 4, 1000)
    assert one is not None
    assert (one.low, one.middle, one.high) == pytest.approx((1.5, 1.5, 1.5))


def test_prices_between_two_depths_lie_between() -> None:
    found = AttentionTimes({"off": {0: {1: [1.0]}, 100: {1: [1.0]}}, "on": {0: {1: [1.0]}, 100: {1: [3.0]}}})
    one = found.ratio("on", 1, 50)
    assert one is not None
    assert one.middle == pytest.approx(2.0)
    assert found.ratio("on", 4, 50) is None
    assert found.ratio("on", 1, 130) is None, "deeper than was measured"


def test_the_price_is_told_where_it_has_moved() -> None:
    found = times(*[1.5] * 7, reading=1.6)
    price = AttentionPrice(found, "mixed", is_reproducible=True)
    told = "--reproducible: at 600 tokens passes take, of the time with --flash-attn off: 1 row 1.50, 4 rows 1.50"
    assert price.line(600).startswith(told)
    assert price.line(601) == ""
    assert "not measured" in price.line(9000)
    assert price.line(600).endswith("16 rows 1.50, reading 1.60")
    assert AttentionPrice(found, "off").line(600) == ""
    assert "localspec calibrate PAIR --attention" in AttentionPrice(AttentionTimes({}), "on").line(600)
    assert "--flash-attn off" in AttentionPrice(found, "mixed", is_default=True).line(600)


def test_where_there_is_a_choice(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not differs(model, OPTIONS), "a tiny model"
    monkeypatch.setattr(attention, "TINY_WEIGHTS", 0)
    assert differs(model, OPTIONS)
    assert not differs(model, replace(OPTIONS, kv_type="q8_0"))
    assert depths_of(300) == (300,)
    assert depths_of(1024) == (256, 1024)
    assert depths_of(4096) == (256, 1000, 4096)
    assert depths_of(131072) == (256, 1000, 16384)


@pytest.mark.parametrize(("reproducible", "kind"), [(True, "mixed"), (False, "on")])
def test_reproducible_takes_mixed_types(model: Model, reproducible: bool, kind: str) -> None:
    with LlamaBackend(model, replace(OPTIONS, reproducible=reproducible, flash_attn="on")) as backend:
        assert backend.options.flash_attn == kind


def test_positions_that_cannot_move_are_not_timed(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepText, "can_deepen", False)
    run = events.Returning(time_attention(model, OPTIONS, (64,), (1,), never))
    list(run)
    assert not run.result.seconds


def test_what_changes_the_price_changes_the_file(model: Model) -> None:
    lora = str(random_gguf(TINY, seed=1))
    changed = [{"threads": 1}, {"kv_type": "f32"}, {"adapters": ((lora, 1.0),)}, {"adapters": ((lora, 0.5),)}]
    files = [_file(model, replace(OPTIONS, **one)) for one in ({}, *changed)]
    assert len(set(files)) == len(files)
    assert _file(model, replace(OPTIONS, n_ctx=4096)) == files[0]


def warned(settings: LoadSettings) -> list[str]:
    loaded, _ = pair.load_pair(settings)
    request = Request(prompt="Once upon a time", max_tokens=4, sampling=Sampling(temperature=0.0))
    with closing(loaded):
        found = [event.message for event in loaded.answer(request) if isinstance(event, events.Warned)]
        return [*found, loaded.target.backend.options.flash_attn]


def test_a_survey_is_told_to_later_loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Measured once by calibration; then the price stands in answers, and decides where nobody asks."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(attention, "TINY_WEIGHTS", 0)
    settings = LoadSettings(str(pair.DRAFT), None, ctx=2048, threads=1)
    asked = replace(settings, flash_attn="on")
    assert "not measured" in warned(asked)[0]
    loaded, _ = pair.load_pair(settings)
    with closing(loaded):
        survey = SurveyRequest(seconds=0.1, sizes=(1,), is_deep=False, is_kept=True, has_attention=True)
        *_, told = loaded.survey(survey)
        assert isinstance(told, events.Inspected)
        assert set(told.content["attention"]) == set(KINDS)
        assert loaded.controllers.profile.prices is not None
        assert set(loaded.controllers.profile.prices.growth) == {1, 4, 16}, "of the kind that runs"
        options = loaded.target.backend.options
    line, kind = warned(asked)
    assert line.startswith("--flash-attn on: at ")
    assert "reading" in line
    assert kind == "on"
    line, kind = warned(replace(settings, reproducible=True))
    assert line.startswith("--reproducible: at ")
    assert kind == "mixed"
    for found, expected in ((times(*[1.0] * 7, depth=2000), "mixed"), (times(*[1.2] * 7, depth=2000), "off")):
        monkeypatch.setattr("localspec.session.attention._read", lambda file, found=found: found)
        assert warned(replace(settings, flash_attn="auto"))[-1] == expected
    with Model(pair.DRAFT, options) as model:
        assert settled(model, replace(options, flash_attn="auto")).flash_attn == "auto"
        monkeypatch.setattr("localspec.session.attention._read", lambda file: times(*[1.0] * 7, depth=2000))
        assert settled(model, replace(options, flash_attn="auto")).flash_attn == "mixed"
        assert settled(model, replace(options, flash_attn="off")).flash_attn == "off"
    monkeypatch.setattr("localspec.session.attention._read", lambda file: times(*[1.0] * 7, depth=2000))
    assert "exact rows cost under 3 %" in warned(settings)[0]
