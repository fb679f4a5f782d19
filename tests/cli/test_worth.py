"""One pair, measured here, through every command that values drafts: all say the same, in the same words."""

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.cli.serving import Others
from localspec.cli.settings import PairOptions
from localspec.control.chain import Worth
from localspec.control.prices import Prices
from localspec.control.profile import Profile
from localspec.control.trial import Kind, Trial
from localspec.models.available import AvailablePair
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.settings.request import LoadSettings, Request
from tests.cli.harness import PAIR, Terminal, needs_pair, run_engine

LOSES = (
    "does not pay here: a pass with 1 guess brings 1.60 tokens (60 % accepted, measured here) and takes 2.70 times as "
    "long as a plain one (measured here), so 0.59 tokens in the time of one"
)
PAYS = (
    "pays here: a pass with 3 guesses brings 2.18 tokens (60 % accepted, measured here) and takes 1.43 times as long "
    "as a plain one (measured here), so 1.52 tokens in the time of one"
)
LOSS = (
    "0.59 times the speed without a draft. A pass with 1 guess gives 1.60 tokens and takes 2.70 times as long "
    "(60% right, measured here)"
)
GAIN = (
    "1.52 times the speed without a draft. A pass with 3 guesses gives 2.18 tokens and takes 1.43 times as long "
    "(60% right, measured here)"
)
FORCE = "-d FILE loads it all the same"


class Here:
    """A folder with a target, a draft in two places, and a profile of both with these prices.

    `is_tried`: else the profile is of loads of the target alone.
    """

    def __init__(self, folder: Path, prices: Prices, *, is_tried: bool = True) -> None:
        self.target, self.draft = (folder / f"{name}-q8_0.gguf" for name in ("target", "draft"))
        for path in (self.target, self.draft):
            path.write_bytes((PAIR / path.name).read_bytes())
        self.draft.with_name("the-same.gguf").write_bytes(self.draft.read_bytes())
        self.env = {"LOCALSPEC_HOME": str(folder / "home"), "HOME": str(folder)}
        files = [file_fingerprint(one) for one in (self.target, self.draft)]
        profile = Profile.of(folder / "home" / "cache" / "profiles", files if is_tried else files[:1], ["made"])
        profile.trial = Trial({"code": Kind(10.0, 8.0, 6.0)}) if is_tried else None
        profile.prices = prices
        assert profile.save()

    def text(self, *args: str) -> str:
        done = run_engine(*args, env=self.env)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode() + done.stderr.decode()

    def json(self, *args: str) -> Any:
        return json.loads(run_engine(*args, "--json", env=self.env).stdout)

    def loaded(self, *args: str) -> str | None:
        found = self.json("run", *args, "-n", "2", "hi")["pair"]["draft"]
        return None if found is None else str(found["path"])


@needs_pair
def test_a_chat_is_told_of_a_draft_that_loses(tmp_path: Path) -> None:
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09))
    told = here.text("chat", "--plain", "--no-save", "-m", f"{here.target}+auto")
    assert "no draft is loaded: " in told
    assert f"; -d {here.draft} loads it all the same" in told


@needs_pair
def test_a_draft_that_loses_is_taken_by_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09))
    target, draft = str(here.target), str(here.draft)
    plan = here.text("plan", target)
    for text, words in ((plan, LOSS), (here.text("pairs", "explain", target, draft), LOSES)):
        assert words in text
        assert FORCE in text
    assert plan.startswith(f"{here.draft.name} does not pay here: copies only.\nIt fits: ")
    assert plan.splitlines()[4].startswith("copies only")
    (found,) = here.json("plan", "--hub", "--offline", target)["candidates"]
    assert found["worth"]["gain"] == pytest.approx(1.6 / 2.7)
    assert found["copies"] == [str(here.draft.with_name("the-same.gguf"))], "two copies are one candidate"
    assert here.json("pairs", "explain", target, draft)["worth"]["gain"] == pytest.approx(1.6 / 2.7)
    assert here.json("plan", target)["chosen"]["draft_name"] is None
    named = here.text("plan", f"{target}+{draft}")
    assert LOSS in named
    assert "to load the first of these: " in named
    assert here.json("plan", f"{target}+auto")["loaded_draft"] is None
    told_by_server: list[str] = []
    offer = AvailablePair(
        name=here.target.name, ref=target, origin="file", target_bytes=1, quant="Q8_0", file=here.target
    )
    monkeypatch.setenv("LOCALSPEC_HOME", here.env["LOCALSPEC_HOME"])
    pair = PairOptions("storyteller", None, False, True, LoadSettings(""))
    others = Others(("all",), pair, lambda settings: Request(), told_by_server.append)
    assert others.served(offer).settings.draft is None
    force = FORCE.replace("FILE", draft)
    assert told_by_server == [f"no draft is loaded: {draft} {LOSES}; {force}"]
    told = here.text("run", "-m", f"{target}+auto", "-n", "2", "hi")
    assert f"no draft is loaded: {draft} {LOSES}; {force}" in told
    assert here.loaded("-m", f"{target}+auto") is None
    assert here.loaded("-m", f"{target}+auto", "--method", "draft-model") == draft
    assert here.loaded("-m", target, "-d", draft) == draft


@needs_pair
def test_a_bench_takes_a_draft_that_loses_as_run_does(tmp_path: Path) -> None:
    """Only where a method needs one. What is left out is told, with what this command takes."""
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09))
    pair = f"{here.target}+auto"
    brief = ("--prompts", "1", "-r", "1", "-n", "4", "--temps", "0", "--json", "-")
    done = run_engine("bench", pair, *brief, env=here.env)
    told = f"no draft is loaded: {here.draft} {LOSES}; -d {here.draft} loads it all the same\n"
    assert told in done.stderr.decode()
    assert json.loads(done.stdout)["provenance"]["pair"]["draft"] is None
    page = here.target.with_name("page.md")
    table = here.text("bench", pair, *brief[:-2], "--methods", "auto", "--markdown", str(page), "-q")
    assert table.count("auto had no draft model: none was loaded\n") == 1
    assert page.read_text().count("auto had no draft model: none was loaded\n") == 1
    named = json.loads(run_engine("bench", pair, *brief, "--methods", "draft-model:k=2", env=here.env).stdout)
    assert named["provenance"]["pair"]["draft"] is not None


@needs_pair
def test_the_full_screen_shows_what_was_warned_of_before_it_opened(tmp_path: Path) -> None:
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.18, 8: 0.9}, 0.09))
    env = {**here.env, "LOCALSPEC_NO_HISTORY": "1"}
    terminal = Terminal(["chat", "-m", f"{here.target}+auto"], env=env, columns=120, rows=40)
    wanted = ("Ask something", "ctx 0/", "no draft is loaded: ")
    terminal.wait_for(lambda: all(text in "\n".join(terminal.screen.display) for text in wanted))
    terminal.type("\x11")
    assert terminal.wait() == 0


@needs_pair
def test_a_draft_that_pays_is_taken_by_all(tmp_path: Path) -> None:
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.11, 8: 0.12}, 0.01))
    target, draft = str(here.target), str(here.draft)
    for args in (("plan", target), ("pairs", "explain", target, draft)):
        text = here.text(*args)
        assert (GAIN if args[0] == "plan" else PAYS) in text
        assert FORCE not in text
    assert here.json("plan", f"{target}+auto")["chosen"]["draft_name"] == draft
    assert here.text("plan", f"{target}+auto").startswith(
        f"{here.draft.name} pays here: 1.52 times the speed without a draft.\n"
    )
    assert here.loaded("-m", f"{target}+auto") == draft


@pytest.mark.parametrize(("how", "told"), [("measured here", "pays here: "), ("assumed", "is expected to pay here: ")])
def test_a_gain_by_an_assumed_acceptance_is_no_promise(how: str, told: str) -> None:
    assert Worth(3, 2.2, 1.4, 0.7, how, "measured here", is_timed=True).in_words.startswith(told)


@needs_pair
def test_a_draft_that_is_only_assumed_to_lose_is_loaded_once_and_measured(tmp_path: Path) -> None:
    here = Here(tmp_path, Prices({1: 0.1, 2: 0.18, 8: 0.9}), is_tried=False)
    target, draft = str(here.target), str(here.draft)
    plan = here.text("plan", f"{target}+auto")
    assert f"localspec run loads {draft} here, " in plan
    assert plan.startswith(f"{here.draft.name} is not expected to pay here: copies only.\n")
    assert f"To know: localspec plan {target} --measure\n" in plan
    assert FORCE not in plan
    assert here.loaded("-m", f"{target}+auto") == draft
    known = here.json("pairs", "explain", target, draft)["worth"]["acceptance"]
    assert known["basis"] == "measured here"
