"""Files that localspec 0.1.0 wrote are read whole: settings, conversations, figures, and what was learned of pairs.

The folder `v0_1_0` has what that version wrote, with other paths. A later version that writes another form adds a
folder beside it, and leaves this one as it is.
"""

import json
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localspec.bench.result import read_result
from localspec.chat.conversation_files import load
from localspec.cli.app import commands
from localspec.cli.option_sources import WITHOUT_FILE, given, option_at, options_of
from localspec.cli.settings_table import described
from localspec.control.profile import EARLIER, Profile, _file_of
from localspec.engine.draft import Draw
from localspec.models.plan.calibration import load as load_rates
from localspec.models.recent import recent_pairs
from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.folders import state_folder
from localspec.ui.json_fields import LINES, LineFields, ResultFields
from tests.cli.harness import run
from tests.ui.test_json_fields import fits, json_page

KEPT = Path(__file__).parent / "v0_1_0"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


def kept(name: str) -> Any:
    return json.loads((KEPT / name).read_text("utf-8"))


def put(name: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(KEPT / name, path)


def test_every_setting_is_taken() -> None:
    """The file has each key that there was, with a value that is not the default."""
    put("config.toml", config_file())
    file = read_configuration()
    assert len(file) > 100
    for key, value in file.items():
        assert given(key, value, option_at(key)) is not None
    for path, command in commands():
        if path[:1] not in WITHOUT_FILE:
            found = {each.name: each.origin.kind for each in described(path)}
            there = {key[-1] for key in file if key[:-1] in ((), path)}
            own = {key for key, option in options_of(command).items() if option.is_own or option.hidden}
            assert {found[key] for key in (there & found.keys()) - own} <= {"config"}, path


@pytest.fixture
def conversations(home: Path) -> dict[str, Any]:
    """Put the conversations in place, and return what the export of that version had of them."""
    path = home / "data" / "conversations.db"
    path.parent.mkdir()
    db = sqlite3.connect(path)
    db.executescript((KEPT / "conversations.sql").read_text("utf-8"))
    db.close()
    exported: dict[str, Any] = kept("export.json")
    return exported


def test_conversations_are_whole(conversations: dict[str, Any]) -> None:
    """Branches, attachments, titles, system messages, figures of answers, and one that a killed program left open."""
    reasons = set()
    for name, before in conversations.items():
        done = run("logs", "export", name, "--format", "json", "--paths")
        after = json.loads(done.stdout)
        messages = [{**new, **old} for new, old in zip(after["messages"], before["messages"], strict=True)]
        assert after == {**after, **before, "messages": messages}
        reasons |= {each["finish"] for each in messages}
    assert reasons == {"sent", "length", "interrupted"}
    shown = run("logs", "export", "6fxxbwft", "--format", "md", env={"TZ": "UTC"}).stdout.decode()
    assert shown == (KEPT / "export.md").read_text("utf-8")


def test_a_conversation_that_was_deleted_comes_back(conversations: dict[str, Any]) -> None:
    assert b"To be deleted" not in run("logs").stdout
    assert run("logs", "undo").returncode == 0
    assert b"To be deleted" in run("logs").stdout


@pytest.mark.parametrize("name", ["6fxxbkcf", "6fxxbzh3"])
def test_a_conversation_goes_on(conversations: dict[str, Any], name: str) -> None:
    done = run("run", "--session", name, "-m", "storyteller", "And now?")
    assert (done.returncode, done.stdout.rstrip()) == (0, b"Once upon a time there was a king."), done.stderr
    assert b"And now?" in run("logs", "show", name).stdout


def test_a_saved_chat_is_loaded() -> None:
    found, before = load(KEPT / "chat.json"), kept("chat.json")
    assert found.system == before["system"]
    assert [{"user": turn.user, "assistant": turn.assistant} for turn in found.turns] == before["turns"]


def test_what_was_learned_of_a_pair_is_kept(tmp_path: Path) -> None:
    """Prices, acceptance and copies; what is learned from then on goes into a file of this version."""
    models, settings, before = ["t", "d"], ["cpu", 2], kept("profile.json")
    put("profile.json", _file_of(tmp_path, [EARLIER, *models, *map(str, settings)]))
    found = Profile.of(tmp_path, models, settings)
    assert found.prices is not None
    assert found.prices.to_wire() == {**found.prices.to_wire(), **before["prices"]}
    assert {key: one.to_wire() for key, one in found.acceptance.items()} == before["acceptance"]
    found.accepted("new", Draw.IID)
    assert found.save()
    again = Profile.of(tmp_path, models, settings)
    assert again.acceptance.keys() == {*before["acceptance"], "new"}
    (copies,) = before["copies"].values()
    (seen,) = (one.to_wire() for one in again.copies.values())
    assert (seen["seen"][: len(copies["seen"])], seen["right"][: len(copies["right"])]) == (
        copies["seen"],
        copies["right"],
    )
    assert Profile.of(tmp_path, models, ["cpu", 3]).prices is None


def test_a_bench_is_compared(tmp_path: Path) -> None:
    """Its table is the one that it has: figures that are no longer measured are left out."""
    found, before = read_result(KEPT / "bench.json"), kept("bench.json")
    after = json.loads(json.dumps(msgspec.to_builtins(found.rows)))
    assert after == [{name: row[name] for name in after[0]} for row in before["results"]]
    assert before["results"][0].keys() - after[0].keys() == {"joules_per_token"}
    done = run("bench", "compare", str(KEPT / "bench.json"), str(KEPT / "bench.json"))
    assert done.returncode == 0, done.stderr
    assert [name in done.stdout for name in (b"plain", b"copy", b"draft-model")] == [True] * 3


def test_recent_pairs_names_and_rates_are_known(home: Path) -> None:
    put("recent.json", state_folder("recent.json"))
    assert [asdict(pair) for pair in recent_pairs()] == kept("recent.json")
    put("catalog.toml", config_file().with_name("catalog.toml"))
    assert b"/models/target-q8_0.gguf+/models/draft-q8_0.gguf" in run("pairs", "show", "mine").stdout
    rates = load_rates(KEPT)
    assert rates is not None
    assert json.loads(json.dumps(asdict(rates)["figures"])) == kept("rates.json")["figures"]


def unread(kind: Any, value: Any, path: str) -> list[str]:
    """Return the fields of a value that its type has no longer, and those that it now has with another type.

    Fields that came later are no loss.
    """
    if isinstance(value, list):
        return [each for one in value for each in unread(kind, one, path)]
    known, lost = {name: inner for name, inner, _ in json_page.fields(kind)}, []
    for name, each in value.items():
        if name not in known:
            lost.append(f"{path}.{name} is gone")
        elif not fits(json_page.spelled(known[name]), each):
            lost.append(f"{path}.{name} is {json_page.spelled(known[name])}, and was {each!r}")
        elif each is not None and (held := json_page.held(known[name])):
            lost += unread(held[0], each, f"{path}.{name}")
    return lost


def test_json_has_every_field_of_before() -> None:
    """Scripts read them by name: `run --json`, and the lines of `--events`."""
    assert unread(ResultFields, kept("run.json"), "result") == []
    common = {name for name, _, _ in json_page.fields(LineFields)}
    lines = [json.loads(line) for line in (KEPT / "events.jsonl").read_text("utf-8").splitlines()]
    assert {line["type"] for line in lines} == {"start", "load", "prefill", "step", "probe", "end"}
    for line in lines:
        assert common <= line.keys()
        content = {name: each for name, each in line.items() if name not in common}
        assert unread(LINES[line["type"]], content, line["type"]) == []
    params = {name for name, _, _ in json_page.params()}
    assert kept("run.json")["params"].keys() <= params
