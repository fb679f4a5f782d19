"""Jobs without a pair, in a process of their own: answers, our own errors, and whatever else can come back."""

import json
import sys
from typing import Any

import pytest

from localspec.errors import IncompatibleError, InternalError, LocalspecError, UsageError
from localspec.settings.lone_jobs import BuildFacts, LendDevices, MachineFacts
from localspec.worker import lone_jobs as asking
from localspec.worker.lone_jobs import Unanswered, answers, ask

# What `localspec.worker.lone_child` would do, with answers of the test's own. It reads the job, as that does.
CHILD = """
import sys
from localspec.errors import UsageError
from localspec.worker import lone_child
{}
lone_child.answers = some
lone_child.main()
"""


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch):
    """Return a function that lets code stand for the child."""

    def play(code: str) -> None:
        monkeypatch.setattr(asking, "COMMAND", (sys.executable, "-P", "-c", code))

    return play


def test_llama_cpp_answers() -> None:
    facts = ask(BuildFacts())
    assert facts["devices"][-1].startswith("CPU")
    machine = ask(MachineFacts())
    assert machine["llama_cpp"] == facts["llama_cpp"]
    assert machine["cores"] >= 1


def test_an_error_of_the_job_is_raised_here() -> None:
    with pytest.raises(LocalspecError) as caught:
        list(answers(LendDevices("nonsense")))  # no address, or a build without RPC
    assert type(caught.value) in (UsageError, IncompatibleError)


def test_answers_come_whatever_is_printed_beside_them(child) -> None:
    """Also more on standard error than a pipe holds."""
    noise = "def some(job):\n for n in range(3):\n  print('a library says hello'); sys.stderr.write('x' * 10**6)\n"
    child(CHILD.format(noise + "  yield {'n': n, 'job': type(job).__name__, 'ü': None}"))
    assert list(answers(BuildFacts())) == [{"n": n, "job": "BuildFacts", "ü": None} for n in range(3)]
    assert ask(BuildFacts())["n"] == 2


def test_an_error_of_ours_is_raised_here_after_what_came_before(child) -> None:
    child(CHILD.format("def some(job):\n yield {'n': 1}\n raise UsageError('no', hint='do')"))
    found = answers(BuildFacts())
    assert next(found) == {"n": 1}
    with pytest.raises(UsageError, match="no") as caught:
        next(found)
    assert caught.value.hint == "do"
    with pytest.raises(UsageError):
        ask(BuildFacts())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_that_name", "No module named"),
        ("import os; os.abort()", "status -6"),
        ("import os; os._exit(0)", "status 0"),
        ("raise OSError('libcudart.so.12: cannot open')", "libcudart"),
        ('print(\'{"type": "inspected", "content": 5}\')', "inspected: Expected `object`"),
        ("print('llama_model_load: error')", "not JSON"),
    ],
)
def test_a_process_that_fails_is_told_in_its_own_words(child, code: str, reason: str) -> None:
    child(code)
    with pytest.raises(Unanswered) as caught:
        ask(BuildFacts())
    assert reason in caught.value.reason
    assert caught.value.exit_code == 3
    assert caught.value.hint == "localspec doctor"


def test_one_that_hangs_is_ended(child) -> None:
    child("import time; time.sleep(600)")
    with pytest.raises(Unanswered, match=r"llama.cpp does not answer: nothing came of it within 0.2 s"):
        ask(BuildFacts(), timeout=0.2)


@pytest.mark.parametrize("end", ["yield {'n': 1}", "yield {'n': 1}\n raise UsageError('no', hint='do')"])
def test_a_library_that_crashes_on_its_way_out_takes_no_answer_along(child, end: str) -> None:
    """As those of devices do, whose destructors run last."""
    child(CHILD.format(f"import atexit, os\natexit.register(os.abort)\ndef some(job):\n {end}"))
    found = answers(BuildFacts())
    assert next(found) == {"n": 1}
    with pytest.raises(UsageError if "raise" in end else StopIteration):
        next(found)
    if "raise" not in end:
        assert ask(BuildFacts()) == {"n": 1}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"command": "sing"}, "there is no job 'sing'"),
        ({"command": "load", "settings": {"target": "m.gguf"}}, "there is no job 'load'"),  # it is for a pair's process
        ({"command": "machinefacts", "servers": 5}, r"machinefacts: .*`\$\.servers`"),
    ],
)
def test_a_job_of_another_version_is_one_line(monkeypatch: pytest.MonkeyPatch, job: dict[str, Any], said: str) -> None:
    monkeypatch.setattr(asking, "_line", lambda _job: json.dumps(job).encode() + b"\n")
    with pytest.raises(InternalError, match=said) as caught:
        ask(BuildFacts())
    assert "\n" not in caught.value.message
