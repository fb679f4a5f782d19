"""The bundled pair demonstrates drafting where nobody says how to draft, and claims nothing for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.state import ChatState
from localspec.conversations.store import Store
from localspec.models.store import introduction, parse_pair, usual_speculation
from localspec.settings.request import LoadSettings, Request, Speculation
from tests.cli.harness import FAKE, REAL, Terminal, localspec, needs_pair, run

pytestmark = needs_pair
DEMONSTRATION = Speculation(method="draft-model", k=3)
OTHER = LoadSettings("/t.gguf", "/d.gguf", "t.gguf+d.gguf")


def bundled() -> LoadSettings:
    pair = parse_pair("storyteller")
    return LoadSettings(str(pair.target), str(pair.draft), pair.name)


def test_it_drafts_visibly_and_claims_no_speedup(tmp_path: Path) -> None:
    args = ("run", "--json", "--seed", "8", "-n", "60", "Once upon a time")
    made: dict[str, Any] = json.loads(localspec(*args, env={"LOCALSPEC_HOME": str(tmp_path)}).stdout)
    assert made["params"]["method"] == "draft-model"
    assert made["spec"]["drafted"] > 20
    assert {"accepted", "corrected"} <= {name for name, n in made["spec"]["tokens_by_source"].items() if n}
    assert made["spec"]["speedup"] is None
    assert "no time is won" in made["spec"]["verdict"]


def test_another_pair_of_a_chat_drafts_in_its_own_way() -> None:
    state = ChatState.opened(Store.open(None), bundled(), Request(speculation=DEMONSTRATION))
    state.switch_pair(OTHER)
    assert state.request.speculation == Speculation()
    state.switch_pair(bundled())
    assert state.request.speculation == DEMONSTRATION
    state.switch_speculation()
    state.switch_pair(OTHER)
    assert state.request.speculation.k == 0
    state.switch_speculation()
    assert state.request.speculation == Speculation()


@needs_pair
@pytest.mark.parametrize("line", ["/draft none", "/model storyteller+none"])
def test_a_chat_gives_up_the_draft_that_the_demonstration_chose(line: str) -> None:
    done = run("chat", "--no-save", "storyteller", "--plain", stdin=f"{line}\n/draft\n/set method\n".encode())
    told = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, told
    assert "draft: none" in told
    assert "method auto" in told


def test_a_way_that_was_chosen_stays_with_another_pair() -> None:
    chosen = Speculation(method="suffix", k=5)
    state = ChatState.opened(Store.open(None), bundled(), Request(speculation=chosen))
    state.switch_pair(OTHER)
    assert state.request.speculation == chosen


def test_it_is_presented() -> None:
    said = " ".join(introduction(bundled(), DEMONSTRATION))
    named = ("localspec plan FILE.gguf --hub", "localspec pull")
    for words in ("not an assistant", "5 million", "demonstration", "wins no time", *named):
        assert words in said
    assert not introduction(bundled(), Speculation())
    assert not introduction(OTHER, Speculation())
    assert usual_speculation(OTHER) == Speculation()


def test_a_newcomer_reads_it_below_the_first_answer() -> None:
    terminal = Terminal(["run", "--seed", "8", "-n", "40", "Once upon a time"], program=REAL)
    assert terminal.wait() == 0
    text = " ".join(terminal.text.split())
    assert text.startswith("there lived a poor man"), "no blank before the first word"
    for words in ("a demonstration", "drafting wins no time", "not an assistant", "localspec explain"):
        assert words in text
    assert "× plain" not in text


def test_the_line_chat_presents_it() -> None:
    terminal = Terminal(["chat", "--plain"], program=FAKE)
    terminal.wait_for(lambda: "localspec plan FILE.gguf --hub" in " ".join(terminal.text.split()))
    assert "not an assistant" in " ".join(terminal.text.split())
    terminal.type("\x04")
    assert terminal.wait() == 0


def test_programs_do_not_read_it() -> None:
    assert b"assistant" not in run("run", "hi").stderr
    assert b"assistant" not in run("run", "--stats", "hi").stderr
    terminal = Terminal(["run", "-q", "hi"], program=FAKE)
    assert terminal.wait() == 0
    assert "assistant" not in terminal.text
