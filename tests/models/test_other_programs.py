"""Models that other programs keep are found, and never changed."""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from localspec.cli.file_names import located
from localspec.cli.habits import model_first
from localspec.errors import DeclinedError, IntegrityError, NotFoundError, UsageError
from localspec.models.available import find, listed, offers
from localspec.models.catalog import load_catalog
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model, size_on_disk
from localspec.models.other_programs import OLLAMA, foreign_models
from localspec.models.recent import remember_pair
from localspec.models.store import NotCachedError, find_model, parse_pair
from localspec.settings.request import LoadSettings
from tests.cli.harness import PAIR, assert_one_line, run
from tests.hub.models import parts

TARGET, DRAFT = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"
LIBRARY = "registry.ollama.ai/library"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ollama(top: Path, name: str, source: Path) -> Path:
    data = source.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    blob = top / "blobs" / f"sha256-{digest}"
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    kinds = {"template": "0" * 64, "model": digest}
    layers = [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{each}", "size": 1}
        for kind, each in kinds.items()
    ]
    manifest = top / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))
    return blob


def put(path: Path, source: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    return path


def test_each_name_of_a_file_of_ollamas_can_be_chosen(home: Path) -> None:
    """What `ollama cp` makes is a name more. The one that was loaded last is first, and stands there once."""
    top = home / ".ollama/models"
    blob = ollama(top, f"{LIBRARY}/story/7b-q8_0", TARGET)
    ollama(top, f"{LIBRARY}/mine/latest", TARGET)
    rows = [offer for offer in listed(load_catalog()) if offer.target == blob]
    assert [offer.ref for offer in rows] == ["mine:latest", "story:7b-q8_0"]
    remember_pair(LoadSettings(str(blob), None, name="story:7b-q8_0"))
    rows = [offer for offer in listed(load_catalog()) if offer.target == blob]
    assert [offer.name for offer in rows] == ["story:7b-q8_0", "mine:latest"]


def test_ollama(home: Path) -> None:
    blob = ollama(home / ".ollama/models", f"{LIBRARY}/story/7b-q8_0", TARGET)
    other = ollama(home / ".ollama/models", f"{LIBRARY}/small/latest", DRAFT)
    assert {one.name: one.path for one in foreign_models()} == {"story:7b-q8_0": blob, "small:latest": other}
    pair = parse_pair("Story:7b-q8_0+small")
    assert (pair.target, pair.draft, pair.name) == (blob, other, "story:7b-q8_0+small:latest")
    assert find_model("small") == other
    with pytest.raises(UsageError, match="Ollama has no 'story:8b' here, but story:7b-q8_0"):
        parse_pair("story:8b")


def test_a_name_of_ollamas_goes_before_one_that_it_begins(home: Path) -> None:
    """Also where both have one file, with a system message each; names that only have a part are told apart."""
    top = home / ".ollama/models"
    ollama(top, f"{LIBRARY}/story2/latest", TARGET)
    ollama(top, f"{LIBRARY}/story/0.5b", TARGET)
    assert parse_pair("story").name == "story:0.5b"
    with pytest.raises(UsageError, match=r"2 models here have 'stor' in their names: story2:latest, story:0\.5b"):
        parse_pair("stor")
    ollama(top, f"{LIBRARY}/story/8b", TARGET)
    assert parse_pair("story").name == "story:0.5b", "one file, and one model by its name"


def test_ollamas_name_begins_a_command(home: Path) -> None:
    """As `ls` prints it; a word with a colon that is no such name begins a prompt."""
    ollama(home / ".ollama/models", f"{LIBRARY}/story/7b-q8_0", TARGET)
    assert model_first(("story:7b-q8_0", "hi")) == ("story:7b-q8_0", ("hi",))
    assert model_first(("note:this", "is", "it")) == (None, ("note:this", "is", "it"))
    assert model_first(("Story", "hi")) == ("Story", ("hi",)), "of any tag, as -m takes it"
    assert model_first(("stories", "hi there", "now")) == (None, ("stories", "hi there", "now"))
    ollama(home / ".ollama/models", f"{LIBRARY}/smol/135m", TARGET)
    with pytest.raises(UsageError, match=r"did you mean -m smol:135m\?"):
        model_first(("smoll:135m", "hi"))


def test_ollama_elsewhere_and_from_the_hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(home / "big"))
    ollama(home / ".ollama/models", f"{LIBRARY}/unseen/latest", TARGET)
    blob = ollama(home / "big", "hf.co/tales/story-GGUF/Q8_0", TARGET)
    mine = ollama(home / "big", "registry.ollama.ai/mine/story/v1", DRAFT)
    assert [one.name for one in foreign_models()] == ["hf.co/tales/story-GGUF:Q8_0", "mine/story:v1"]
    assert find_model("hf:tales/story-GGUF:Q8_0") == blob
    assert find_model("mine/story:v1") == mine
    mine.unlink()
    assert len(foreign_models()) == 1, "without its weights it is no model"


def test_damaged_manifests_are_nothing(home: Path) -> None:
    top = home / ".ollama/models/manifests" / LIBRARY / "x"
    top.mkdir(parents=True)
    for name, text in {"a": "", "b": "[]", "c": '{"layers": 3}', "d": '{"layers": [{"mediaType": 1}, 2]}'}.items():
        (top / name).write_text(text)
    evil = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:../../../../etc/passwd"}
    (top / "e").write_text(json.dumps({"layers": [evil]}))
    assert foreign_models() == []


def test_lm_studio(home: Path) -> None:
    file = put(home / ".lmstudio/models/tales/story-GGUF/story-Q8_0.gguf", TARGET)
    put(file.with_name("mmproj-story-f16.gguf"), DRAFT)
    (home / ".lmstudio/settings.json").write_text(json.dumps({"downloadsFolder": str(home / "far")}))
    far = put(home / "far/tales/small-GGUF/small-Q8_0.gguf", DRAFT)
    assert [one.name for one in foreign_models()] == ["hf:tales/small-GGUF:Q8_0", "hf:tales/story-GGUF:Q8_0"]
    assert find_model("tales/story-GGUF") == file
    assert find_model("hf:tales/small-GGUF:Q8_0") == far
    assert find_model("hf:tales/small-GGUF/small-Q8_0.gguf") == far
    with pytest.raises(NotFoundError):
        find_model("hf:tales/small-GGUF:Q4_0")


def test_llama_cpp(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(home / "llama"))
    file = put(home / "llama/tales_story-GGUF_story-Q8_0.gguf", TARGET)
    (home / "llama/manifest=tales=story-GGUF=Q8_0.json").write_text("{}")
    lone = put(home / "llama/other.gguf", DRAFT)
    assert {one.name: one.path for one in foreign_models()} == {"hf:tales/story-GGUF:Q8_0": file, str(lone): lone}
    assert find_model("hf:tales/story-GGUF:Q8_0") == file


def test_llama_cpps_file_without_a_manifest_has_its_hubs_name(home: Path) -> None:
    """Its name is ORG/REPO/FILE with '_' for '/'; the manifest is written for a quantisation that was typed."""
    cache = home / ".cache/llama.cpp"
    file = put(cache / "Qwen_Qwen2.5-Coder-0.5B-Instruct-GGUF_qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", TARGET)
    put(cache / "Qwen_Qwen2.5-Coder-0.5B-Instruct-GGUF_qwen2.5-coder-0.5b-instruct-q8_0.gguf", DRAFT)
    for typed in ("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "hf:qwen/qwen2.5-coder-0.5b-instruct-GGUF:Q4_K_M"):
        assert find_model(typed) == file
    for other in ("Qwen/Qwen2.5-Coder-0.5B", "hf:Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q2_K"):
        with pytest.raises(NotCachedError):
            find_model(other)


def test_they_are_listed_used_and_never_removed(home: Path) -> None:
    blob = ollama(home / ".ollama/models", f"{LIBRARY}/story/latest", TARGET)
    file = put(home / ".lmstudio/models/tales/small-GGUF/small-Q8_0.gguf", DRAFT)
    put(home / "models/own.gguf", DRAFT)
    env = {
        "HOME": str(home),
        "LOCALSPEC_HOME": str(home / "localspec"),
        "OLLAMA_MODELS": "",
        "HF_HOME": str(home / "hf"),
    }
    said = run("ls", env=env).stdout.decode()
    for name in ("story:latest", "hf:tales/small-GGUF:Q8_0", str(home / "models/own.gguf")):
        assert name in said
    done = run("rm", "-y", "story:latest", env=env)
    assert (done.returncode, b"ollama rm story:latest" in done.stderr) == (DeclinedError.exit_code, True), done.stderr
    done = run("rm", "-y", "--force", "hf:tales/small-GGUF:Q8_0", env=env)
    assert (done.returncode, b"LM Studio" in done.stderr) == (DeclinedError.exit_code, True), done.stderr
    assert blob.is_file()
    assert file.is_file()
    found = json.loads(run("plan", "--hub", "story:latest", "--offline", "--json", env=env).stdout)
    assert "hf:tales/small-GGUF:Q8_0" in [one["name"] for one in found["candidates"]]


def test_a_folder_is_the_one_model_in_it(home: Path) -> None:
    file = put(home / "LMSTUDIO/tales/story/story-Q8_0.gguf", TARGET)
    put(file.with_name("mmproj-model-f16.gguf"), DRAFT)
    assert os.path.samefile(find_model("LMSTUDIO/tales/story"), file)
    assert os.path.samefile(find_model(str(home / "LMSTUDIO")), file)
    put(file.with_name("small-Q8_0.gguf"), DRAFT)
    with pytest.raises(UsageError, match="holds 2 models: ") as caught:
        find_model("./LMSTUDIO/tales/story")
    loads_each_candidate(caught.value, file, file.with_name("small-Q8_0.gguf"))
    only = put(home / "one" / "only-q8_0.gguf", TARGET)
    assert find_model("one").samefile(only), "without ./ as well"
    assert parse_pair("one+none").target.samefile(only)
    (home / "bare").mkdir()
    with pytest.raises(NotFoundError, match="is a directory without a GGUF model"):
        find_model("./bare")


def test_a_link_of_another_name_to_a_split_model(home: Path) -> None:
    for name, data in parts().items():
        (home / name).write_bytes(data)
    link = home / "mine.gguf"
    link.symlink_to(home / min(parts()))
    assert len(read_model(link).parts) == len(parts()) == 3
    assert size_on_disk(link) == sum(map(len, parts().values()))


def test_a_part_of_a_name_finds_the_one_model_that_has_it(home: Path) -> None:
    """Of a file its own name counts, not its folder's; of Ollama's the name without the tag."""
    file = put(home / "models" / "gemma-3-270m-q4_k_m.gguf", TARGET)
    other = put(home / "models" / "qwen2.5-coder-1.5b.gguf", TARGET)
    ollama(home / ".ollama" / "models", f"{LIBRARY}/qcoder/1.5b", DRAFT)
    assert (parse_pair("gemma").target, parse_pair("gemma3").name) == (file, file.name)
    assert parse_pair("2.5-coder+gemma").draft == file
    assert parse_pair("qcoder").name == "qcoder:1.5b"
    assert parse_pair("qwen2.5coder").target == other
    for none in ("ge", "model", "llama"):
        with pytest.raises(NotFoundError):
            parse_pair(none)


def test_a_whole_file_name_is_found_as_a_part_of_it_is(home: Path) -> None:
    """What `ls`, the picker and hints show can be typed, and a file of that name in this folder goes before."""
    file = put(home / "models" / "qwen2.5-coder-1.5b-q4_k_m.gguf", TARGET)
    studio = put(home / ".lmstudio/models/tales/story-GGUF/Story-lms-Q8_0.gguf", DRAFT)
    assert parse_pair(file.name) == parse_pair("coder")
    assert parse_pair(f"{file.name}+{studio.name}").draft == parse_pair("coder", studio.name.upper()).draft == studio
    assert find_model("Story-lms") == studio
    with pytest.raises(NotFoundError, match=r"gone\.gguf does not exist"):
        parse_pair("gone.gguf")
    with pytest.raises(NotFoundError, match="does not exist"):
        parse_pair(f"./{file.name}")
    assert located("model", "PAIR", file.name, home) == str(file), "so a preset keeps it"
    assert located("model", "PAIR", "hf:", home) == "hf:", "what is no name is told where it is looked up"
    here = put(home / file.name, DRAFT)
    assert find_model(file.name).samefile(here)
    put(home / ".lmstudio/models/tales/other-GGUF/Story-lms-Q8_0.gguf", TARGET)
    with pytest.raises(UsageError, match="2 models here") as caught:
        parse_pair(studio.name)
    loads_each_candidate(caught.value, studio, home / ".lmstudio/models/tales/other-GGUF/Story-lms-Q8_0.gguf")


@pytest.mark.parametrize("other", [".lmstudio/models/tales/story-GGUF/Other.gguf", ""])
def test_a_file_that_several_programs_keep_has_each_name(home: Path, other: str) -> None:
    """It is listed once, by the first of them."""
    blob = ollama(home / ".ollama/models", f"{LIBRARY}/tales/latest", DRAFT)
    first = blob if not other else put(home / other, DRAFT)
    link = home / "models" / "story-q8_0.gguf"
    link.parent.mkdir()
    link.symlink_to(first)
    assert find_model(link.name).samefile(first)


def test_a_name_of_ollamas_without_its_tag(home: Path) -> None:
    """One with an owner too, for which the hub is not asked; after `hf:` it is the hub's."""
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/me/pirate/latest", TARGET)
    assert (find_model("me/pirate"), parse_pair("Me/Pirate").name) == (blob, "me/pirate:latest")
    for hubs in ("hf:me/pirate", "me/sailor"):
        with pytest.raises(NotCachedError):
            find_model(hubs)
    with pytest.raises(UsageError) as caught:
        find_model("ollama:me/pirate:latest")
    assert caught.value.hint == "me/pirate:latest"


def test_ollamas_system_message_and_its_parameters_are_used(home: Path) -> None:
    """What is typed or set goes before both, and a conversation goes on as it began. -1 means nothing here."""
    top = home / ".ollama/models"
    ollama(top, "registry.ollama.ai/me/pirate/latest", TARGET)
    manifest = top / "manifests/registry.ollama.ai/me/pirate/latest"
    wire = json.loads(manifest.read_text())
    given = {"temperature": 0.1, "stop": ["zz", "\\n"], "top_k": 20, "num_predict": 3, "repeat_last_n": 32, "seed": -1,
             "num_ctx": 512, "min_p": "much", "penalize_newline": True}  # fmt: skip
    before = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Arr."}]
    texts = {"system": "Speak as pirates do.\n", "params": json.dumps(given), "messages": json.dumps(before)}
    for n, (kind, text) in enumerate(texts.items()):
        (top / f"blobs/sha256-{n:064}").write_text(text)
        wire["layers"].append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{n:064}"})
    manifest.write_text(json.dumps(wire))
    used = "the system message is Ollama's, of me/pirate:latest; -s '' leaves it out"
    begin = "2 messages of Ollama's me/pirate:latest go before yours"

    def asked(*words: str) -> tuple[list[str], dict[str, Any]]:
        done = run("run", "-m", "me/pirate", "--json", *words)
        return done.stderr.decode().splitlines(), json.loads(done.stdout)["params"]

    said, params = asked("hi")
    assert said == [used, begin]
    taken = {
        "temperature": 0.1,
        "top_k": 20,
        "penalty_last_n": 32,
        "stop": ["zz", "\\n"],
        "max_tokens": 3,
        "min_p": 0.05,
    }
    assert {name: params[name] for name in taken} == taken
    assert "\nSystem: Speak as pirates do.\n" in run("logs", "show").stdout.decode()
    said, params = asked("--top-k", "5", "-c", "hi")
    assert (said, params["top_k"], params["temperature"], params["max_tokens"]) == ([], 5, 0.1, 3)
    for system in ("", "Be brief."):
        assert asked("-s", system, "hi")[0] == [begin]
        assert asked("-q", "-s", system, "hi")[0] == []
        assert "pirates" not in run("logs", "show").stdout.decode()
    for option in ("model", "me/pirate"), ("temp", "0.8"):
        run("config", "set", *option)

    def told(text: bytes, *words: str) -> list[list[str]]:
        lines = [line for line in text.decode().splitlines() if any(word in line for word in words)]
        return [re.split("  +", line.strip()) for line in lines]

    assert told(run("config", "show", "run", "--origin").stdout, "Ollama's", "config.toml") == [
        ["model", "me/pirate", "config.toml"],
        ["system", "Speak as pirates do.", "Ollama's me/pirate:latest"],
        ["max-tokens", "3", "Ollama's me/pirate:latest"],
        ["stop", "zz \\n", "Ollama's me/pirate:latest"],
        ["temp", "0.8", "config.toml"],
        ["top-k", "20", "Ollama's me/pirate:latest"],
        ["penalty-last-n", "32", "Ollama's me/pirate:latest"],
    ]
    said, params = asked("-n", "1", "--raw", "hi")
    assert (said, params["temperature"], params["top_k"], params["max_tokens"]) == ([], 0.8, 20, 1)
    chat = run("chat", "--plain", "me/pirate", stdin=b"/system\n/set top-p 0.5\n/settings\n/model storyteller+none\n"
               b"/model me/pirate\n")  # fmt: skip
    switched = "the settings stay: those of Ollama's me/pirate:latest are for a chat that begins with it"
    assert told(chat.stderr, "Ollama's") == [[f"localspec: warning: {each}"] for each in (used, begin, switched)]
    assert told(chat.stdout, "Ollama's", "this chat", "system:") == [
        ["system: Speak as pirates do."],
        ["top-k", "20", "Ollama's me/pirate:latest"],
        ["top-p", "0.5", "this chat"],
        ["penalty-last-n", "32", "Ollama's me/pirate:latest"],
        ["max-tokens", "3", "Ollama's me/pirate:latest"],
        ["stop", r"'zz' '\\n'", "Ollama's me/pirate:latest"],
    ]
    assert told(run("show", "me/pirate").stdout, "Ollama's") == [
        ["Ollama's", 'name: "me/pirate:latest"'],
        ["Ollama's", f"parameters: {json.dumps(given)}"],
        ["Ollama's", 'system: "Speak as pirates do."'],
        ["Ollama's", f"messages: {json.dumps(before)}"],
    ]
    wire = {"name": "me/pirate:latest", "parameters": given, "system": "Speak as pirates do.", "messages": before}
    assert json.loads(run("show", "me/pirate", "--json").stdout)["ollama"] == wire


def test_ollamas_copy_of_a_model_has_both_names(home: Path) -> None:
    """`ollama cp` writes a second manifest for the same blob."""
    blob = ollama(home / ".ollama/models", f"{LIBRARY}/smol/135m", TARGET)
    ollama(home / ".ollama/models", "registry.ollama.ai/me/pirate/latest", TARGET)
    names = ["me/pirate:latest", "smol:135m"]
    assert [one.name for one in foreign_models()] == names
    for typed, name in (("pirate", names[0]), ("smol", names[1]), ("me/pirate", names[0])):
        assert (parse_pair(typed).target, parse_pair(typed).name) == (blob, name)
        assert parse_pair("storyteller", typed).name == f"storyteller+{name}"
    link = home / "models" / "own.gguf"
    link.parent.mkdir()
    link.symlink_to(blob)
    assert len(foreign_models()) == 2, "a link to it is the same model"
    assert parse_pair(str(blob)).name in names, "a blob has no name of its own"
    chosen = [one for one in offers(load_catalog()) if one.origin == OLLAMA]
    assert [find(one).name.partition("+")[0] for one in chosen] == names, "as the picker opens them"
    for name in names:
        assert_one_line(run("rm", "-y", name), DeclinedError.exit_code, f"ollama rm {name}")


def test_a_part_of_several_names_lists_them(home: Path) -> None:
    for name in ("coder-small.gguf", "coder-large.gguf"):
        put(home / "models" / name, TARGET)
    with pytest.raises(UsageError) as caught:
        parse_pair("coder")
    listed = "coder-large.gguf, coder-small.gguf"
    assert caught.value.message == f"2 models here have 'coder' in their names: {listed}"
    assert caught.value.hint == "coder-large.gguf, or more of the name"
    loads_each_candidate(caught.value, *(home / "models").iterdir())


@pytest.mark.parametrize("typed", ["my mod", "My Model (1)", "model (1)", "my-model", "my model (1).gguf"])
def test_a_part_of_a_name_may_have_blanks(home: Path, typed: str) -> None:
    file = put(home / "models" / "my model (1).gguf", TARGET)
    assert find_model(typed) == file
    assert parse_pair("storyteller", typed).draft == file
    assert_one_line(run("run", "-m", "no mod", "hi"), 3, "there is no pair called 'no mod'")


def loads_each_candidate(error: UsageError, *files: Path) -> None:
    printed = error.message.rpartition(": ")[2] if "hf:" not in error.message else error.message.split("names: ")[1]
    found = [find_model(name).resolve() for name in printed.split(", ")]
    assert sorted(found) == sorted(file.resolve() for file in files)
    assert error.hint is not None
    assert error.hint.removesuffix(", or more of the name") == printed.split(", ")[0]


def test_the_case_of_a_files_name_decides_among_several(home: Path) -> None:
    """A whole name comes before a part of one, and without the ending as with it."""
    small = put(home / "models" / "smollm2-135m-q4_1.gguf", TARGET)
    other = put(home / ".lmstudio/models/tales/SmolLM2-GGUF/SmolLM2-135M-Q4_1.gguf", DRAFT)
    longer = put(home / "models" / "smollm2-135m-q4_1-v2.gguf", DRAFT)
    for typed, file in ((small.name, small), (other.name, other), (longer.name, longer), (longer.stem, longer)):
        assert find_model(typed) == file
        assert parse_pair("storyteller", typed).draft == file
    for typed, files in (("SMOLLM2-135M-Q4_1.GGUF", (small, other)), ("smollm2", (small, other, longer))):
        with pytest.raises(UsageError) as caught:
            find_model(typed)
        loads_each_candidate(caught.value, *files)
    other.unlink()
    assert find_model(small.stem) == small, "not the one whose name goes on"


def test_candidates_of_one_name_are_told_by_their_paths(home: Path) -> None:
    files = [put(home / place / "coder-q8_0.gguf", data) for place, data in (("models", TARGET), ("models/b", DRAFT))]
    files += [
        put(home / f".lmstudio/models/tales/coder-GGUF/{name}-Q8_0.gguf", TARGET) for name in ("coder", "x-coder")
    ]
    with pytest.raises(UsageError) as caught:
        find_model("coder")
    loads_each_candidate(caught.value, *files)


@pytest.mark.parametrize("typed", ["gemma-3-270m", "ggml-org/gemma-3-270m-it-GGUF"])
def test_a_model_of_the_hub_that_is_missing_names_the_one_here_of_its_name(home: Path, typed: str) -> None:
    file = put(home / "models" / "gemma-3-270m-it-q4_k_m.gguf", TARGET)
    env = {"HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"}
    instead = f"try: -m {file.name}, which is here, or "
    assert_one_line(run("run", "-m", typed, "hi", env=env), 4, "is not on this machine", instead)
    assert_one_line(run("run", "-m", typed, "--offline", "hi", env=env), 3, f"{instead}localspec pull")
    as_draft = run("run", "-m", str(TARGET), "--draft", typed, "--offline", "hi", env=env)
    assert_one_line(as_draft, 3, f"try: --draft {file.name}, which is here")
    for command in (("plan", "--hub", typed), ("pairs", "explain", str(TARGET), typed)):
        assert_one_line(run(*command, "--offline", env=env), 3, f"try: {file.name}, which is here, or")
        assert_one_line(run(*command, env=env), 4, f"try: {file.name}, which is here, or")
    race = run("race", typed, "--offline", "hi", env=env)
    assert_one_line(race, 3, f"try: {file.name}, which is here, or")
    for command in ("plan", "show"):
        told = run(command, typed, "--offline", env=env).stderr.decode()
        assert f"a model of that name is here: localspec {command} {file.name}\n" in told
    file.unlink()
    assert "which is here" not in run("run", "-m", typed, "hi", env=env).stderr.decode()


def test_a_misspelt_file_names_the_nearest(home: Path) -> None:
    """Of the folder that was typed, as it was typed; else of a model that is here."""
    put(home / "models" / "smollm2-135m-Q4_1.gguf", TARGET)
    put(home / "far" / "tale-q8_0.gguf", TARGET)
    for typed, close in (
        ("smolm2-135m-q4_1.gguf", "smollm2-135m-Q4_1.gguf"),
        ("~/models/smolm2-135m-q4_1.gguf", "~/models/smollm2-135m-Q4_1.gguf"),
        ("./smollm2-135m-Q4_1.gguf", "smollm2-135m-Q4_1.gguf"),
        ("far/tales-q8_0.gguf", "far/tale-q8_0.gguf"),
    ):
        with pytest.raises(NotFoundError, match="does not exist") as caught:
            parse_pair("storyteller", typed)
        assert caught.value.hint == f"Did you mean '{close}'?"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("story:7b", "Ollama has no 'story:7b' here, but story:latest — try: story:latest"),
        ("ollama:story:7b", "Ollama has no 'ollama:story:7b' here, but story:latest — try: story:latest"),
        ("ollama:tale", "Ollama has no 'ollama:tale' here, but tale:135m — try: tale:135m"),
        ("stroy", "there is no pair called 'stroy'. Did you mean 'story:latest'?"),
        ("qwen3:8b", "nothing else can be downloaded from. Did you mean 'qwen3-8b'?"),
        ("sotry:latest", "nothing else can be downloaded from. Did you mean 'story:latest'?"),
        ("tale-tler", "there is no pair called 'tale-tler'. Did you mean 'tale-teller-1b-q8_0.gguf'?"),
    ],
)
def test_a_misspelt_name_of_a_model_that_is_here_names_it(home: Path, typed: str, told: str) -> None:
    ollama(home / ".ollama" / "models", f"{LIBRARY}/story/latest", TARGET)
    if typed == "ollama:tale":
        ollama(home / ".ollama" / "models", f"{LIBRARY}/tale/135m", TARGET)
    (home / "models").mkdir()
    (home / "models" / "tale-teller-1b-q8_0.gguf").write_bytes(DRAFT.read_bytes())
    for command in ("run", "chat"):
        done = run(command, "-m", typed, env=dict(os.environ), stdin=b"hi", cwd=home)
        line = assert_one_line(done, 3 if " pair " in told else 2)
        assert line.rstrip().endswith(told)


def test_ollamas_model_without_its_weights_is_told(home: Path) -> None:
    """The manifest stays where a download was broken off, or a blob was cleaned away."""
    ollama(home / ".ollama/models", f"{LIBRARY}/story/latest", TARGET)
    ollama(home / ".ollama/models", f"{LIBRARY}/gone/7b", DRAFT).unlink()
    assert [one.name for one in foreign_models()] == ["story:latest"]
    listed = run("ls").stdout.decode()
    assert "  missing  Ollama: ollama pull gone:7b\n" in listed
    assert json.loads(run("ls", "--json").stdout)["absent"] == ["gone:7b"]
    for words in (["-m", "gone:7b", "hi"], ["gone:7b", "hi"], ["-m", "story+gone:7b", "hi"]):
        assert_one_line(run("run", *words), 3, "Ollama lists gone:7b", "try: ollama pull gone:7b")


def test_a_blob_has_its_models_name_in_messages(home: Path) -> None:
    blob = ollama(home / ".ollama/models", f"{LIBRARY}/story/latest", TARGET)
    assert model_info(read_model(blob)).label == "story:latest"
    assert read_model(blob).name == "Ollama's story:latest"
    blob.write_text("no model")
    line = assert_one_line(run("show", "story"), IntegrityError.exit_code, "Ollama's story:latest is not a valid GGUF")
    assert "sha256" not in line
    other = put(home / "x" / blob.name, TARGET)
    assert read_model(other).name.endswith(other.name), "a file of such a name elsewhere is none of Ollama's"
