"""Names of files in config.toml and in conversations mean the same file from every folder."""

import json
import os
import shutil
from pathlib import Path

import pytest

from localspec.cli.app import commands
from localspec.cli.option_sources import ONCE, Configurable, options_of
from localspec.cli.settings_table import described
from localspec.conversations.store import Store
from localspec.settings.config_file import config_file, read_configuration
from tests.cli.harness import PAIR, needs_pair, run, run_engine

TARGET, DRAFT = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"
SAMPLES = {  # what is typed, and what of it is a file's name
    "model": ("t.gguf", "t.gguf"),
    "draft": ("sub/d.gguf", "sub/d.gguf"),
    "system": ("@s.txt", "@s.txt"),
    "suffix": ("@s.txt", "@s.txt"),
    "prediction": ("@s.txt", "@s.txt"),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in os.environ:
        if name.startswith("LOCALSPEC_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "config").mkdir(parents=True)
    return tmp_path


def file_options() -> list[tuple[str, Configurable]]:
    found = {}
    for path, command in commands():
        for key, option in options_of(command).items():
            shown = option.metavar or ""
            if key not in ONCE and (key in SAMPLES or any(word in shown for word in ("FILE", "FOLDER", "PATH"))):
                found.setdefault(".".join((*path, key)) if option.is_own else key, option)
    return list(found.items())


def placed(key: str, folder: Path) -> tuple[str, str]:
    text = SAMPLES.get(key.rpartition(".")[2], ("x.txt", ""))[0]
    name = text.removeprefix("@")
    return text, text.replace(name, str(folder / name))


@pytest.mark.parametrize("key", [key for key, _ in file_options()])
def test_a_file_in_the_configuration_is_found_from_its_folder(key: str, home: Path) -> None:
    """As it is written by hand, and as `localspec config set` writes it: from the folder where it was typed."""
    text, written = placed(key, config_file().parent)
    *tables, name = key.split(".")
    value = f"['{text}']" if name == "file" else f"'{text}'"
    config_file().write_text((f"[{'.'.join(tables)}]\n" if tables else "") + f"{name} = {value}\n")
    path = tuple(tables) or next(path for path, command in commands() if name in options_of(command))
    found = next(each for each in described(path) if each.name == name).value
    assert (found if isinstance(found, str) else found[0]) == written
    here, there = home / "here", home / "there"
    here.mkdir()
    there.mkdir()
    assert run("config", "set", key, text, cwd=here, env=dict(os.environ)).returncode == 0
    value = read_configuration()[tuple(key.split("."))]
    kept = value if isinstance(value, str) else value[0]
    assert kept == placed(key, here)[1]
    assert run("config", "get", key, cwd=there, env=dict(os.environ)).stdout.decode().strip().endswith(kept)


@pytest.mark.parametrize(
    ("key", "text"),
    [("model", "storyteller"), ("model", "hf:org/repo:Q4_K_M"), ("draft", "none"), ("draft", "auto"),
     ("template", "chatml"), ("system", "Be brief."), ("suite", "stories"), ("option", "k=3"), ("corpus", "answers")],
)  # fmt: skip
def test_what_names_no_file_stays(key: str, text: str) -> None:
    assert run("config", "set", key, text, env=dict(os.environ)).returncode == 0
    assert read_configuration()[key,] in (text, [text])


@needs_pair
@pytest.mark.parametrize("name", ["t.gguf", "./t.gguf", "../one/t.gguf+none", "t.gguf+d.gguf"])
def test_a_conversation_goes_on_with_its_file_from_every_folder(name: str, home: Path) -> None:
    """Another file of that name in the folder is not taken; one in the same place is told."""
    one, two = home / "one", home / "two"
    for folder, source in ((one, TARGET), (two, DRAFT)):
        folder.mkdir()
        shutil.copy(source, folder / "t.gguf")
        shutil.copy(DRAFT, folder / "d.gguf")
    env = dict(os.environ)
    assert run_engine("run", "-m", name, "-n", "2", "Once", cwd=one, env=env).returncode == 0
    with Store.open(home / "home" / "data" / "conversations.db") as store:
        assert store.conversations(1)[0].pair.startswith("/")
    assert going_on(two, env) == (one / "t.gguf", [])
    shutil.copy(DRAFT, one / "t.gguf")
    file, warnings = going_on(two, env)
    assert file == one / "t.gguf"
    assert any("another file than the one that answered" in said for said in warnings)
    assert going_on(two, env)[1] == [], "it has answered now"


@needs_pair
def test_a_name_that_is_no_text_is_found_again(home: Path) -> None:
    """A file's name is bytes: those that are no UTF-8 pass the worker's pipe, the conversation and JSON."""
    name = os.fsdecode(b"t\xff.gguf")
    shutil.copy(TARGET, home / name)
    env = dict(os.environ)
    done = run_engine("run", "-m", f"{name}+none", "-n", "2", "Once", cwd=home, env=env)
    assert done.returncode == 0, done.stderr
    with Store.open(home / "home" / "data" / "conversations.db") as store:
        assert store.conversations(1)[0].pair == f"{home / name}+none"
    assert going_on(home / "home", env) == ((home / name).resolve(), [])
    for form in ("json", "md", "html"):
        assert run("logs", "export", "--format", form, env=env).returncode == 0
    shown = run("logs", "show", env=env)
    assert (shown.returncode, shown.stderr) == (0, b"")


@needs_pair
def test_a_conversation_of_an_earlier_version_goes_on(home: Path) -> None:
    """It kept the name as it was typed: the last answer says where the file was."""
    one, two = home / "one", home / "two"
    one.mkdir()
    two.mkdir()
    shutil.copy(TARGET, one / "t.gguf")
    env = dict(os.environ)
    assert run_engine("run", "-m", "t.gguf", "-n", "2", "Once", cwd=one, env=env).returncode == 0
    with Store.open(home / "home" / "data" / "conversations.db") as store:
        store.set_pair(store.conversations(1)[0].id, "t.gguf")
    assert going_on(two, env)[0] == one / "t.gguf"


def going_on(folder: Path, env: dict[str, str]) -> tuple[Path, list[str]]:
    """Go on with the last conversation in a folder; return the target's file and the warnings about the pair."""
    done = run_engine("run", "-c", "-n", "2", "--json", "And then?", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    warnings = [each["message"] for each in made["warnings"] if "another file" in each["message"]]
    return Path(made["pair"]["target"]["path"]).resolve(), warnings
