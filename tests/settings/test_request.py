"""Settings: each bad value is refused by the option's name as typed, and all of them survive the pipe."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.settings.declaration import spelled
from localspec.settings.jobs import Generate, Load
from localspec.settings.request import (
    LoadSettings,
    Message,
    Request,
    Sampling,
    Speculation,
)
from tests.worker.wire import crossed

RANGES = {  # option: field, values in range, values out of it
    "--temp": ("temperature", [0.0, 0.8, 1e6], [-0.1]),
    "--top-k": ("top_k", [0, 1, 2**31 - 1], [-1, 2**31]),
    "--top-p": ("top_p", [1e-9, 1.0], [0.0, -0.5, 1.1]),
    "--min-p": ("min_p", [0.0, 1.0], [-0.1, 1.1]),
    "--typical-p": ("typical_p", [0.1, 1.0], [0.0, 1.5]),
    "--repeat-penalty": ("repeat_penalty", [0.5, 1.0, 3.0], [0.0, -1.0]),
    "--presence-penalty": ("presence_penalty", [-2.0, 2.0], [-101.0, 101.0]),
    "--frequency-penalty": ("frequency_penalty", [-2.0, 2.0], [-101.0, 101.0]),
    "--penalty-last-n": ("penalty_last_n", [-1, 0, 64], [-2]),
    "--dry-multiplier": ("dry_multiplier", [0.0, 0.8, 100.0], [-0.1, 101.0]),
    "--dry-base": ("dry_base", [1.0, 1.75, 100.0], [0.9, 101.0]),
    "--dry-allowed-length": ("dry_allowed_length", [0, 2, 2**31 - 1], [-1, 2**31]),
    "--dry-penalty-last-n": ("dry_penalty_last_n", [-1, 0, 64], [-2]),
    "--xtc-probability": ("xtc_probability", [0.0, 0.5, 1.0], [-0.1, 1.1]),
    "--xtc-threshold": ("xtc_threshold", [0.0, 0.1, 1.0], [-0.1, 1.1]),
    "--draft-temp": ("draft_temperature", [None, 0.0, 2.0], [-1.0]),
    "--seed": ("seed", [None, 0, 2**64 - 1], [-1, 2**64, 10**400]),
}
NEVER = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("option", RANGES)
def test_values_in_range_pass(option: str) -> None:
    """The edges included."""
    name, good, _ = RANGES[option]
    for value in good:
        sampling = replace(Sampling(), **{name: value})
        sampling.check()
        assert getattr(sampling, name) == value


@pytest.mark.parametrize("option", RANGES)
def test_values_out_of_range_are_refused_by_name(option: str) -> None:
    """Each with the option as people type it, the value, and what would do. NaN and infinity never pass."""
    name, _, bad = RANGES[option]
    for value in [*bad, *NEVER]:
        with pytest.raises(UsageError) as caught:
            Request(sampling=replace(Sampling(), **{name: value})).check()
        assert caught.value.message.startswith(f"{option} {spelled(value)} ")
        assert "it must be" in caught.value.message
        assert caught.value.hint
        assert caught.value.exit_code == 2


def test_every_sampling_setting_is_checked() -> None:
    """No field is forgotten: the table above has all of them but two lists, which have their own tests."""
    assert {name for name, _, _ in RANGES.values()} | {"logit_bias", "dry_sequence_breaker"} == {
        field.name for field in fields(Sampling)
    }


@pytest.mark.parametrize("bias", [math.nan, math.inf])
def test_a_bias_must_be_addable(bias: float) -> None:
    """NaN and plus infinity would make the distribution undefined; minus infinity bans a token."""
    with pytest.raises(UsageError, match="--logit-bias"):
        Sampling(logit_bias=((1, 0.5), (3, bias))).check()
    Sampling(logit_bias=((1, -math.inf),)).check()


@pytest.mark.parametrize("k", [-1, 10**6 + 1, math.nan])
def test_draft_lengths_out_of_range(k: Any) -> None:
    """Refused as -k; None and zero are fine."""
    with pytest.raises(UsageError, match=r"^-k "):
        Speculation(k=k).check()
    Speculation(k=0).check()
    Speculation().check()


@pytest.mark.parametrize("max_tokens", [0, -5, 2**31])
def test_answers_of_no_length(max_tokens: int) -> None:
    """At least one token is asked for, or no number at all."""
    with pytest.raises(UsageError, match=r"^--max-tokens "):
        Request(max_tokens=max_tokens).check()
    Request(max_tokens=1).check()
    Request(max_tokens=None).check()


def test_an_empty_stop_string() -> None:
    """It would stop before the first token."""
    with pytest.raises(UsageError, match="--stop ''"):
        Request(stop=("a", "")).check()


def test_the_defaults_are_llama_cpps() -> None:
    """Temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, everything else off: and they pass their own checks."""
    defaults = Sampling()
    assert (defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p) == (0.8, 40, 0.95, 0.05)
    assert (defaults.typical_p, defaults.repeat_penalty, defaults.presence_penalty) == (1.0, 1.0, 0.0)
    assert (defaults.frequency_penalty, defaults.penalty_last_n) == (0.0, 64)
    Request().check()


numbers = st.floats(allow_nan=False, allow_infinity=False)
samplings = st.builds(
    Sampling,
    temperature=numbers,
    top_k=st.integers(0, 2**31 - 1),
    logit_bias=st.lists(st.tuples(st.integers(0, 2**31 - 1), numbers), max_size=3).map(tuple),
    draft_temperature=st.none() | numbers,
    seed=st.none() | st.integers(0, 2**64 - 1),
)
ROLES = st.sampled_from(["system", "user", "assistant"])
requests = st.builds(
    Request,
    messages=st.lists(st.builds(Message, ROLES, st.text(), files=st.lists(st.text()).map(tuple)), max_size=3).map(
        tuple
    ),
    prompt=st.none() | st.text(),
    max_tokens=st.none() | st.integers(1, 2**31 - 1),
    stop=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    template=st.none() | st.text(),
    sampling=samplings,
    speculation=st.builds(Speculation, k=st.none() | st.integers(0, 100), tree=st.sampled_from(["chain", "static:2"])),
    details=st.booleans(),
    shorten=st.booleans(),
    left_out=st.lists(st.integers(0, 99)).map(tuple),
)


@given(requests)
def test_requests_survive_the_pipe(request_: Request) -> None:
    """Equal after JSON, tuples and 64-bit seeds included."""
    assert crossed(Generate(request_)).request == request_


@given(st.builds(LoadSettings, target=st.text(), draft=st.none() | st.text(), ctx=st.none() | st.integers(1, 10**6)))
def test_load_settings_survive_the_pipe(settings: LoadSettings) -> None:
    """The same for what is fixed while a pair is loaded."""
    assert crossed(Load(settings)).settings == settings


def test_a_ban_survives_the_pipe() -> None:
    """Minus infinity is not JSON proper, but both ends are ours and agree on it."""
    request_ = Request(sampling=Sampling(logit_bias=((7, -math.inf),)))
    assert crossed(Generate(request_)).request == request_


def test_a_limit_is_told_in_all_its_digits() -> None:
    with pytest.raises(UsageError, match=f"at most {2**64 - 1}$"):
        Request(sampling=Sampling(seed=2**64)).check()
