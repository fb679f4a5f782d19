"""What `localspec pull` asks and says: a person whatever they are shown, and what came before what does not fit."""

from functools import partial

import pytest

from tests.cli.harness import REAL, Terminal
from tests.hub.machine import DRAFT, PAIR, TARGET, Machine
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.models import TARGET as TARGET_BYTES
from tests.hub.models import of_other_tokens
from tests.hub.server import Repo

PULLED = "pulled, hash correct"


def shows(terminal: Terminal, text: str) -> bool:
    return text in terminal.text


@pytest.mark.parametrize(
    ("args", "env"), [([], {}), (["-q"], {}), ([], {"ACCESSIBLE": "1"}), ([], {"TERM": "dumb"})], ids=str
)
def test_a_person_is_asked_whatever_is_shown(machine: Machine, args: list[str], env: dict[str, str]) -> None:
    terminal = Terminal(["pull", *args, TARGET], program=REAL, env={**machine.env, **env}, columns=200)
    terminal.wait_for(partial(shows, terminal, "Download 5.2 MB for "))
    terminal.type("n\n")
    assert terminal.wait() == 11
    assert "must be downloaded first — try: -y downloads without asking" in terminal.text
    assert not machine.server.downloads()


def test_no_draft_for_auto_is_a_warning(machine: Machine) -> None:
    done = machine.call("pull", f"{TARGET}+auto")
    assert done.returncode == 0, done
    assert done.stdout.decode().endswith(f"{PULLED}\n")
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("localspec: warning: the pair is not compared: no draft for ")
    assert "--hub, or --draft none" in last
    (warning,) = machine.json("pull", f"{TARGET}+auto")["warnings"]
    assert "no draft for" in warning


def test_what_came_is_said_before_what_does_not_fit(machine: Machine) -> None:
    """Of several pairs each is compared."""
    machine.server.repos["tales/draft-GGUF"].files["sub/draft.Q8_0.gguf"] = of_other_tokens()
    machine.server.repos["tales/other-GGUF"] = Repo({"other-Q8_0.gguf": TARGET_BYTES})
    done = machine.call("pull", PAIR, f"hf:tales/other-GGUF:Q8_0+{DRAFT}")
    assert done.returncode == 6
    assert [line.partition(": ")[2] for line in done.stdout.decode().splitlines()] == [PULLED] * 3
    said = [line for line in done.stderr.decode().splitlines() if "does not fit" in line]
    assert [line.startswith("localspec: warning: ") for line in said] == [True, False]
    error = machine.json("pull", PAIR, code=6)["error"]
    assert error["kind"] == "incompatible"
    assert [one["bytes"] for one in error["detail"]["files"]] == [len(TARGET_BYTES), len(DRAFT_BYTES)]


def test_where_nothing_can_be_noted(machine: Machine) -> None:
    machine.receipts.folder.parent.mkdir(parents=True)
    machine.receipts.folder.write_bytes(b"a file where the folder should be")
    done = machine.call("pull", PAIR)
    assert done.returncode == 0, done
    assert done.stderr.decode().count("cannot be noted") == 1
    assert machine.found(TARGET) == [TARGET_BYTES]
