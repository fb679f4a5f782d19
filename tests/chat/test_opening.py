"""A conversation that opens says that another pair has answered in it, and that another process answers now."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.conversations import rows
from localspec.conversations.records import ELSEWHERE, INTERRUPTED
from localspec.conversations.store import Store
from localspec.settings.request import LoadSettings
from tests.cli.harness import PAIR, ROOT, assert_one_line, needs_pair, run
from tests.cli.talking import ANSWER, Talk

HELD = """
import sys
from pathlib import Path
from localspec.conversations.store import Store
store = Store.open(Path(sys.argv[1]))
held = store.create("storyteller")
asked = store.add_message(held.id, None, "user", "Tell me")
answer = store.add_message(held.id, asked.id, "assistant")
store.append_text(answer.id, "Half of")
store.message(answer.id)
print(held.id, flush=True)
sys.stdin.readline()
store.append_text(answer.id, " it, and all.")
store.finish(answer.id, "stop")
print("done", flush=True)
sys.stdin.readline()
"""


class Other:
    """Another process, which has written half an answer in the conversation `id`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.id = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self._line() == "done"


@contextmanager
def answering(path: Path) -> Iterator[Other]:
    """Let another process answer in the file at `path`."""
    command = [sys.executable, "-c", HELD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Other(process)
        finally:
            process.kill()


def test_another_pair_is_named_with_what_loads_it(capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(capsys)
    talk.say("one", "/model other", "two", "/new", "three", "/list", "/resume 2")
    assert talk.errors == ""
    talk.say("/new", "/model other+small", "/resume 2")
    assert talk.errors == "", "a draft changes no answer"
    talk.say("/new", "/model /a/third.gguf+none", "/resume 2")
    line = "this conversation was held with other; from here on third answers — /model other+none loads the other"
    assert talk.errors == f"localspec: warning: {line}\n"


def test_the_pair_of_a_conversation_is_that_which_answered_last(capsys: pytest.CaptureFixture[str]) -> None:
    """Looking at it changes nothing; `chat -c` opens what has answered."""
    talk = Talk(capsys)
    talk.say("one")
    first = talk.store.conversations(1)[0]
    talk.say("/new", "/model /a/third.gguf+none", "/list", "/resume 1")
    assert talk.store.get(first.id).pair == first.pair
    talk.say("two")
    assert talk.store.get(first.id).pair == "/a/third.gguf+none"
    assert talk.chat.state.messages.key == first.id


def test_another_process_that_answers_is_named_and_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept.db"
    with answering(path) as other, Store.open(path) as store:
        talk = Talk(capsys, store)
        shown = talk.say(f"/resume {other.id}", "/history")
        pid = other.process.pid
        assert f"another localspec (process {pid}) is answering here; /fork goes on in a copy" in talk.errors
        assert "Assistant: Half of\n(still being written by another localspec)\n" in shown
        talk.say("And then?")
        assert f"localspec: another localspec (process {pid}) is still answering here — try: wait" in talk.errors
        assert (talk.code, talk.said) == (2, ["Tell me", "Half of"])
        other.finish()
        assert "Assistant: Half of it, and all.\n" in talk.say("And then?")
        assert talk.said == ["Tell me", "Half of it, and all.", "And then?", ANSWER]
        assert talk.sent[1] == ("assistant", "Half of it, and all.")
        assert [message.text for message in talk.kept] == talk.said


def test_a_command_shows_an_answer_that_has_ended_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.db"
    with answering(path) as other, Store.open(path) as store:
        talk = Talk(capsys, store)
        talk.say(f"/resume {other.id}")
        other.finish()
        assert talk.say("/branch").count("Assistant: Half of it, and all.\n") == 1
        assert "Half of it" not in talk.say("And then?")
        assert talk.sent[1] == ("assistant", "Half of it, and all.")


def test_a_copy_of_half_an_answer_goes_on_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "kept.db"
    with answering(path) as other, Store.open(path) as store:
        talk = Talk(capsys, store)
        talk.say(f"/resume {other.id}", "/fork", "And then?")
        assert talk.said == ["Tell me", "Half of", "And then?", ANSWER]
        other.finish()
        assert [message.text for message in store.messages(other.id)] == ["Tell me", "Half of it, and all."]


def test_the_mark_of_a_process_that_has_ended_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it ended since the conversation opened, and where another process has its number by now."""
    path = tmp_path / "kept.db"
    with Store.open(path) as store:
        talk = Talk(capsys, store)
        with answering(path) as other:
            talk.say(f"/resume {other.id}")
            assert talk.chat.state.messages.path()[-1].finish == ELSEWHERE
        talk.say("And then?")
        assert talk.said == ["Tell me", "Half of", "And then?", ANSWER]
        assert talk.chat.state.messages.path()[1].finish == INTERRUPTED


def test_a_number_that_is_another_process_by_now_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    with answering(path) as other:
        with Store.open(path) as before:
            old = before.create("pair")
            answer = before.add_message(old.id, before.add_message(old.id, None, "user", "Hm?").id, "assistant")
            earlier = rows._NUMBERS + other.process.pid  # in the first moment of the system
            before._file.write(
                lambda db: db.execute("UPDATE message SET writer = ? WHERE id = ?", (earlier, answer.id))
            )
        with Store.open(path) as store:
            assert store.message(answer.id).finish == INTERRUPTED
            assert store.messages(other.id)[-1].finish is None


def test_run_does_not_follow_half_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "data" / "conversations.db"
    path.parent.mkdir()
    with answering(path) as other:
        done = run("run", "-c", "And then?", env={"LOCALSPEC_HOME": str(tmp_path)})
        assert_one_line(done, 2, f"another localspec (process {other.process.pid}) is still answering here", "-c")
        assert done.stdout == b""


@needs_pair
def test_in_an_edge_a_name_is_that_of_the_draft(capsys: pytest.CaptureFixture[str]) -> None:
    """The target is its verifier's; what fits no such vocabulary, or names two models, is told at once."""
    talk, far = Talk(capsys), "ws://tower:8080"
    target, draft = (str(PAIR / f"{name}-q8_0.gguf") for name in ("target", "draft"))
    talk.chat.state.settings = edge = LoadSettings(target, name="q at tower:8080", verifier=far)
    for line, drafting in ((f"/model {draft}", draft), ("/draft none", None), (f"/draft {draft}", draft)):
        talk.say(line)
        assert talk.errors == ""
        name = "q at tower:8080" if drafting is None else "q at tower:8080+draft-q8_0"
        assert talk.chat.state.settings == replace(edge, draft=drafting, name=name)
    talk.say("/model storyteller+none", "/model /none.gguf")
    assert "the verifier has the target, and storyteller+none names no draft alone" in talk.errors
    assert "/none.gguf does not exist" in talk.errors
    assert talk.chat.state.settings.draft == draft


def test_what_goes_back_to_the_target_before(capsys: pytest.CaptureFixture[str]) -> None:
    """Of an edge the name of a pair says nothing: there it is that of the draft."""
    talk, far = Talk(capsys), "ws://tower:8080"
    here = talk.chat.state.settings
    there = replace(here, name="q at tower:8080", verifier=far)
    talk.say("one", "/new")
    talk.chat.state.settings = there
    talk.say("two", "/list", "/resume 2")
    told = "localspec: warning: this conversation was held with"
    assert talk.errors == f"{told} pair; from here on ws://tower:8080+d answers\n".replace("pair", "t+d")
    talk.chat.state.settings = replace(there, draft=None)
    talk.say("/resume 1")
    assert talk.errors == "", "a draft changes no answer"
    talk.chat.state.settings = here
    talk.say("/list", "/resume 1")
    back = f"localspec chat -c --verifier {far} goes back"
    assert talk.errors == f"{told} ws://tower:8080+d; from here on t+d answers — {back}\n"
