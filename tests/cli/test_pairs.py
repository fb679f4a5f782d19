"""`localspec pairs`: the catalogue on the command line, and which draft fits which target, to the token."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from huggingface_hub import constants

from localspec.models.available import offers
from localspec.models.catalog import load_catalog
from tests.cli.harness import PAIR, assert_one_line, run, run_engine
from tests.heads.reference import write_random_head
from tests.hub.machine import DRAFT, PARTS, TARGET, Machine
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.models import of_other_tokens, parts, whole
from tests.hub.server import Repo, serving


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with serving(whole()) as server:
        yield Machine(server, tmp_path)


def call(home: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    with patch.object(constants, "HF_HUB_CACHE", str(home / "hf" / "hub")):
        return run("pairs", *args, env={"LOCALSPEC_HOME": str(home), "HF_HOME": str(home / "hf")})


def answer(home: Path, *args: str, code: int = 0) -> Any:
    done = call(home, *args, "--json")
    assert done.returncode == code, done
    return json.loads(done.stdout)


def test_list_search_and_show(tmp_path: Path) -> None:
    listed = answer(tmp_path, "list")
    assert listed["user_catalog"] == str(tmp_path / "config" / "catalog.toml")
    names = [one["name"] for one in listed["pairs"]]
    assert names[0] == "storyteller"
    assert len(names) == len(set(names)) > 60
    assert [one["name"] for one in listed["pairs"] if one["tested"]] == ["storyteller"]
    head, *lines = call(tmp_path).stdout.decode().split("\n\n")[0].splitlines()
    assert len(lines) == len(names)
    assert head.split()[-1] == "licence"
    (line,) = (line for line in lines if " qwen3-8b " in line)
    assert line.split() == ["qwen3-8b", "5", "GB", "Q4_K_M", "qwen3-0.6b,", "13", "%", "apache-2.0"]
    assert [line.split()[1] for line in lines if line.startswith("here")] == ["storyteller"]
    found = [one["name"] for one in answer(tmp_path, "list", "CODER")["pairs"]]
    assert "qwen2.5-coder-32b" in found
    assert "llama-3.3-70b" not in found
    shown = answer(tmp_path, "show", "llama-3.3-70b")
    assert shown["drafts"] == ["llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"]
    assert shown["is_here"] is False
    assert answer(tmp_path, "show", "storyteller")["is_here"] is True
    told = call(tmp_path, "show", "llama-3.3-70b").stdout.decode()
    assert "context          131072 tokens\n" in told
    assert "draft's share    3 % of the target's size\n" in told
    assert "_" not in "".join(line[:16] for line in told.splitlines())


def test_names_of_ones_own(tmp_path: Path) -> None:
    target, draft = PAIR / "target-q8_0.gguf", PAIR / "draft-q8_0.gguf"
    path = tmp_path / "config" / "catalog.toml"
    path.parent.mkdir(mode=0o700)
    path.write_text("# mine\n[pairs.old]\ntarget = './x.gguf' # a note\n")
    answer(tmp_path, "add", "tale", f"{target}+{draft}", "--notes", "two\nlines")
    text = path.read_text()
    assert text.startswith("# mine\n[pairs.old]\ntarget = './x.gguf' # a note\n")
    assert answer(tmp_path, "show", "tale")["notes"] == "two lines"
    done = run_engine("run", "-m", "tale", "--json", "-n", "4", "hi", env={"LOCALSPEC_HOME": str(tmp_path)})
    assert json.loads(done.stdout)["pair"]["draft"]["path"] == str(draft)
    assert_one_line(call(tmp_path, "add", "tale", str(target)), 2, "--replace")
    answer(tmp_path, "add", "tale", f"{target}+none", "--replace")
    assert answer(tmp_path, "show", "tale")["pair"].endswith("+none")
    answer(tmp_path, "add", "near", "./models/storyteller/target-q8_0.gguf")
    assert answer(tmp_path, "show", "near")["pair"] == str(target), "it means the same in every folder"
    answer(tmp_path, "rm", "tale")
    assert "tale" not in path.read_text()
    assert "# a note" in path.read_text()


def test_a_bare_name_is_kept_as_the_file_that_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after -m and -d; the name means the same in every folder, and says how it is mended when the file is gone."""
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    big, small = (Path(shutil.copy(PAIR / f"{name}-q8_0.gguf", home / "models")) for name in ("target", "draft"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    told = call(tmp_path, "add", "fast", f"{big}+{small.name}").stdout.decode()
    assert told.startswith(f"fast is {big}+{small} (in ")
    assert answer(tmp_path, "show", "fast")["pair"] == f"{big}+{small}"
    assert answer(tmp_path, "explain", "fast") == answer(tmp_path, "explain", f"{big}+{small.name}")
    rows = {offer.name: offer for offer in offers(load_catalog(tmp_path / "config" / "catalog.toml"))}
    assert (rows["fast"].origin, rows["fast"].where) == ("yours", "here")
    small.unlink()
    rows = {offer.name: offer for offer in offers(load_catalog(tmp_path / "config" / "catalog.toml"))}
    assert (rows["fast"].origin, rows["fast"].where) == ("yours", "gone")
    assert re.search(r"^gone  fast  ", call(tmp_path, "list").stdout.decode(), re.MULTILINE)
    env = {"LOCALSPEC_HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    line = assert_one_line(run("run", "-m", "fast", "hi", env=env), 3, "for which 'fast' stands, does not exist")
    assert line.endswith(f"try: localspec pairs add fast {big}+NEW.gguf --replace, or localspec pairs rm fast\n")
    moved = Path(shutil.copy(PAIR / "draft-q8_0.gguf", home / "models" / "draft-q8_1.gguf"))
    line = assert_one_line(run("run", "-m", "fast", "hi", env=env), 3)
    words = line.partition("try: localspec pairs ")[2].partition(", or")[0].split()
    assert call(tmp_path, *words).returncode == 0, "what it names can be typed"
    assert answer(tmp_path, "show", "fast")["pair"] == f"{big}+{moved}"


def test_what_mends_names_is_typed_as_it_is_printed(tmp_path: Path) -> None:
    """With blanks in a path, and with two names for one file, of which each is mended."""
    folder = tmp_path / "my models"
    folder.mkdir()
    big, small = (Path(shutil.copy(PAIR / f"{name}-q8_0.gguf", folder)) for name in ("target", "draft"))
    for name, pair in (("fast", f"{big}+{small}"), ("tiny", str(small))):
        assert call(tmp_path, "add", name, pair).returncode == 0
    line = assert_one_line(call(tmp_path, "explain", "tiny"), 2, "which draft of tiny?")
    assert shlex.split(line.partition("try: ")[2])[2:] == ["explain", str(small), "DRAFT"]
    moved = small.rename(folder / "draft-q8_1.gguf")
    line = assert_one_line(call(tmp_path, "explain", "tiny", "low-bit"), 3, "for which 'fast' and 'tiny' stand, does")
    for typed in line.partition("try: ")[2].split(" and "):
        assert call(tmp_path, *shlex.split(typed)[2:]).returncode == 0
    assert answer(tmp_path, "show", "fast")["pair"] == f"{big}+{moved}"
    assert answer(tmp_path, "show", "tiny")["pair"] == str(moved)


def test_a_reason_is_printed_once(tmp_path: Path) -> None:
    (other := tmp_path / "other.gguf").write_bytes(of_other_tokens())
    told = call(tmp_path, "explain", "storyteller", str(other)).stdout.decode()
    first = next(line for line in told.splitlines() if " in the target and " in line)
    told_of = first.partition("because ")[2].partition(";")[0]
    assert told.count(told_of) == 1, told
    assert told.count(" in the target and ") == 5, "the others that differ are listed"


def test_a_catalogue_that_is_a_link_stays_one(tmp_path: Path) -> None:
    """It may lie among the files that a person keeps in one place."""
    kept, path = tmp_path / "dotfiles.toml", tmp_path / "config" / "catalog.toml"
    path.parent.mkdir()
    kept.write_text("# mine\n")
    path.symlink_to(kept)
    answer(tmp_path, "add", "x", "storyteller")
    assert path.is_symlink()
    assert kept.read_text().startswith("# mine\n")
    assert "[pairs.x]" in kept.read_text()
    assert [each.name for each in path.parent.iterdir()] == ["catalog.toml"]


def test_what_is_added_can_be_read_again(tmp_path: Path) -> None:
    """Whatever is called so, and wherever it lies; what the file could not hold is refused before it is written."""
    path = tmp_path / "config" / "catalog.toml"
    deep = tmp_path.joinpath(*["d" * 200] * 4)
    deep.mkdir(parents=True)
    for folder, name in ((tmp_path, "a+b.gguf"), (deep, "c.gguf"), (tmp_path, "e\xa0f.gguf")):
        (folder / name).symlink_to(PAIR / "target-q8_0.gguf")
    answer(tmp_path, "add", "qwen3-0.6b", f"{tmp_path}/a+b.gguf")
    answer(tmp_path, "add", "deep", f"{deep}/c.gguf+none")
    (tmp_path / "a+b.gguf").unlink()
    assert answer(tmp_path, "show", "qwen3-8b")["drafts"][0] == "qwen3-0.6b"
    assert answer(tmp_path, "show", "qwen3-0.6b")["pair"] == f"{tmp_path}/a+b.gguf"
    written = path.read_text()
    for args, words in (
        (["storyteller", "--notes", "n" * 501], ["notes", "500"]),
        ([f"{tmp_path}/e\xa0f.gguf"], ["target"]),
    ):
        line = assert_one_line(call(tmp_path, "add", "x", *args), 2, "'x' cannot be kept", *words)
        assert "mend" not in line
    path.write_text(
        written + '[models.big]\nfamily = "tale"\nrepo = "org/big"\nabout_gb = { Q8_0 = 2.0 }\nparams = 1.5\n'
        'license = "mit"\ncontext = 4096\n'
    )
    assert_one_line(call(tmp_path, "add", "big", "storyteller", "--replace"), 2, "a model called 'big'")
    for name in ("big", "deep", "qwen3-0.6b"):
        answer(tmp_path, "rm", name)
    assert answer(tmp_path, "show", "qwen3-0.6b")["origin"] == "built in"


def without_a_token(data: bytes) -> bytes:
    """Return the draft with one token of its vocabulary spelt differently."""
    for mark in (b"\xc4\xa0", b"\xe2\x96\x81"):
        if mark + b"king" in data:
            return data.replace(mark + b"king", mark + b"qing", 1)
    raise AssertionError


def test_the_verdict_names_the_token(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(without_a_token(DRAFT_BYTES))
    made = answer(tmp_path, "explain", "storyteller", str(other))
    assert made == answer(tmp_path, "explain", f"storyteller+{other}"), "as everywhere a pair is written"
    assert (made["fits"], made["n_different"]) == (True, 1)
    assert made["overlap"] == {"tokens": 4092, "share": pytest.approx(4092 / 4093), "share_of_sample": 1.0}
    assert "king" in made["differences"][0]["target"]
    assert "qing" in made["differences"][0]["draft"]
    done = call(tmp_path, "explain", "storyteller", str(other))
    assert done.returncode == 0
    assert "fits in part: by the tokens that both have" in done.stdout.decode()
    assert f"token {made['differences'][0]['token']} is" in done.stdout.decode()
    other.write_bytes(of_other_tokens())
    made = answer(tmp_path, "explain", "storyteller", str(other), code=6)
    assert made["fits"] is False
    assert made["overlap"]["share"] < 0.1
    assert "does not fit" in call(tmp_path, "explain", "storyteller", str(other)).stdout.decode()
    made = answer(tmp_path, "explain", "storyteller", "storyteller")
    assert (made["fits"], made["overlap"]) == (True, None)
    assert made["size_ratio"] == pytest.approx(len(DRAFT_BYTES) / (PAIR / "target-q8_0.gguf").stat().st_size)


def test_the_lines_of_a_draft_of_another_vocabulary(tmp_path: Path) -> None:
    """The reasons, the tokens that differ, how many more there are, then what it costs."""
    other = tmp_path / "other.gguf"
    other.write_bytes(of_other_tokens())
    lines = call(tmp_path, "explain", "storyteller", str(other)).stdout.decode().splitlines()
    kinds = [line.split()[0] for line in lines[3:]]
    assert kinds == sorted(kinds, key=["because", "token", "and", "but"].index)
    assert {"because", "token", "and"} <= set(kinds)


def test_auto_takes_the_draft_that_fits(machine: Machine) -> None:
    """Beside the target lie models of other vocabularies, which are named in the error, and one that fits."""
    folder = machine.folder / "models"
    folder.mkdir()
    shutil.copy(PAIR / "target-q8_0.gguf", folder / "t.gguf")
    run = ["run", "-m", f"{folder}/t.gguf+auto", "-n", "4", "--json", "hi"]
    assert_one_line(machine.call(*run[:-2], "hi"), 3, "no draft", "--hub")
    (folder / "a.gguf").write_bytes(DRAFT_BYTES.replace(b"\xc4\xa0the", b"\xc4\xa0thx", 1))
    (folder / "aa.gguf").write_bytes(without_a_token(DRAFT_BYTES))  # it shares more
    named = f"--draft {folder}/aa.gguf, which has another vocabulary, or --draft none"
    assert_one_line(machine.call(*run[:-2], "hi"), 3, "no draft with the vocabulary of t.gguf", named)
    (folder / "b.gguf").write_bytes(DRAFT_BYTES)
    (folder / "c.gguf").write_bytes(b"no model")
    made = json.loads(machine.call(*run).stdout)
    assert made["pair"]["draft"]["path"] == str(folder / "b.gguf")
    assert made["pair"]["name"] == "t.gguf+b.gguf"


def test_a_target_in_parts_is_compared_as_a_whole(machine: Machine) -> None:
    """All parts are read, on the hub and here: each has some of the weights."""
    size = sum(map(len, parts().values()))
    far = machine.json("pairs", "explain", PARTS, DRAFT)
    assert (far["fits"], far["target"]["bytes"]) == (True, size)
    assert machine.links() == [], "nothing was pulled"
    machine.call("pull", "-y", PARTS, DRAFT)
    near = machine.json("pairs", "explain", PARTS, DRAFT)
    assert (near["fits"], near["target"]["bytes"]) == (True, size)
    assert near["target"]["n_params"] == far["target"]["n_params"] == machine.json("show", PARTS)["n_params"]
    (found,) = machine.json("plan", "--hub", "--offline", PARTS)["candidates"]
    assert (found["name"], found["verdict"]) == ("hf:tales/draft-GGUF/sub/draft.Q8_0.gguf", "fits")


def test_a_head_on_the_hub_is_a_draft(machine: Machine, tmp_path: Path) -> None:
    """It is compared by its header, found beside models, pulled, and drafts."""
    head = write_random_head(tmp_path / "storyteller-eagle3-F32.gguf", "eagle3")
    machine.server.repos["tales/storyteller-eagle3-GGUF"] = Repo({head.name: head.read_bytes()})
    name = f"hf:tales/storyteller-eagle3-GGUF/{head.name}"
    assert machine.json("pairs", "explain", TARGET, name)["fits"]
    found = {one["name"]: one for one in machine.json("plan", "--hub", TARGET)["candidates"]}
    assert "hf:tales/storyteller-eagle3-GGUF:F32" in found
    assert machine.links() == [], "nothing was pulled"
    made = machine.json("run", "-y", "-m", f"{TARGET}+{name}", "-n", "2", "--method", "eagle3", "hi")
    assert made["params"]["method"] == "eagle3"
    assert made["pair"]["draft"]["path"].endswith(head.name)


def test_what_lies_beside_a_model_to_draft_for_it_is_offered(machine: Machine) -> None:
    """By `pull`, which takes the model alone, and as a draft by `plan --hub`, before the download and after it."""
    beside = ["X-MTP-Q8_0.gguf", "assistant/X-assistant-Q8_0.gguf"]
    files = {"X-Q8_0.gguf": machine.server.repos["tales/storyteller-GGUF"].files["storyteller-Q8_0.gguf"]}
    machine.server.repos["tales/x-GGUF"] = Repo(files | dict.fromkeys([*beside, "X-MTP-Q4_0.gguf"], DRAFT_BYTES))
    names = [f"hf:tales/x-GGUF/{file}" for file in beside]
    told = f"{', '.join(beside)} beside it may draft for it: localspec plan hf:tales/x-GGUF:Q8_0 --hub\n"
    for _ in range(2):
        found = [one for one in machine.json("plan", "--hub", "hf:tales/x-GGUF:Q8_0")["candidates"] if one["is_good"]]
        assert [one["name"] for one in found if "x-GGUF" in one["name"]] == names
        assert machine.call("pull", "-y", "hf:tales/x-GGUF:Q8_0").stdout.decode().endswith(told)
    assert machine.links() == ["X-Q8_0.gguf"]
    at = machine.server.repos["tales/x-GGUF"].commit
    told_at = machine.call("pull", "-y", f"hf:tales/x-GGUF@{at}:Q8_0").stdout.decode()
    assert told_at.endswith(f"localspec plan hf:tales/x-GGUF@{at}:Q8_0 --hub\n"), "of that revision"
    with_draft = machine.call("pull", "-y", f"hf:tales/x-GGUF:Q8_0+{names[0]}").stdout.decode()
    assert "may draft" not in with_draft
    assert "may draft" not in machine.call("pull", "-y", DRAFT).stdout.decode(), "a drafter has none"
    here = machine.json("plan", "--hub", "hf:tales/x-GGUF:Q8_0")["candidates"]
    assert [one["where"] for one in here if names[0] in (one["name"], *one["copies"])] == ["here"]


def list_the_tales(machine: Machine) -> None:
    """Give the machine a catalogue of the hub's target and the draft for it."""
    catalog = machine.folder / "home" / "config" / "catalog.toml"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(
        '[models.big]\nfamily = "tale"\nrepo = "tales/storyteller-GGUF"\nabout_gb = { Q8_0 = 0.005 }\nparams = 0.0047\n'
        'license = "mit"\ncontext = 1024\ndrafts = ["small"]\n'
        '[models.small]\nfamily = "tale"\nrepo = "tales/draft-GGUF"\nabout_gb = { Q8_0 = 0.0013 }\nparams = 0.0011\n'
        'license = "mit"\ncontext = 1024\n'
    )


def test_suggestions_from_here_the_catalogue_and_the_hub(machine: Machine) -> None:
    """The target is on the hub; of what is there only headers are read."""
    server = machine.server
    server.repos["tales/storyteller-tiny-GGUF"] = Repo({"tiny-Q8_0.gguf": without_a_token(DRAFT_BYTES)})
    server.repos["../storyteller"] = server.repos["storyteller"] = server.repos["tales/draft-GGUF"]  # are no names
    server.repos["tales/storyteller-empty-GGUF"] = Repo({"empty-Q8_0.gguf": b"<html>"})
    list_the_tales(machine)
    found = {one["name"]: one for one in machine.json("plan", "--hub", TARGET)["candidates"]}
    assert found[DRAFT]["verdict"] == "fits"
    assert (found[DRAFT]["where"], found[DRAFT]["is_good"]) == ("catalogue", True)
    other = found["hf:tales/storyteller-tiny-GGUF:Q8_0"]
    assert other["verdict"].startswith("has another vocabulary: it drafts 100 % of the target's tokens")
    assert (other["where"], other["n_different"], other["is_good"], other["can_draft"]) == ("hub", 1, False, True)
    assert list(found).index("hf:tales/storyteller-tiny-GGUF:Q8_0") > list(found).index(DRAFT)
    assert "cannot be read" in found["hf:tales/storyteller-empty-GGUF"]["verdict"]
    assert machine.links() == [], "nothing was pulled"
    lines = machine.call("plan", "--hub", TARGET).stdout.decode().splitlines()
    (line,) = [each for each in lines if each.startswith(f"{DRAFT} · 1.3 MB · catalogue: fits; ")]
    assert "is expected to pay here: a pass with 2 guesses brings 2.19 tokens (70 % accepted, assumed)" in line
    assert found[DRAFT]["worth"]["acceptance"] == {"value": 0.7, "basis": "assumed"}
    n = len(server.downloads())
    machine.call("pairs", "explain", TARGET, DRAFT)
    assert len(server.downloads()) == n, "headers are kept"
    machine.pull(TARGET)
    offline = {one["name"]: one for one in machine.json("plan", "--hub", "--offline", TARGET)["candidates"]}
    assert offline[DRAFT]["verdict"] == "not looked at: it is not on this machine"
    assert machine.json("run", "-y", "-m", f"{TARGET}+auto", "-n", "2", "hi")["pair"]["draft"]["bytes"] == len(
        DRAFT_BYTES
    )


def test_a_target_without_kin_is_offered_small_models_of_other_families(machine: Machine) -> None:
    """They draft with the tokens that both have. Where there is kin, nobody looks at them."""
    list_the_tales(machine)
    catalog = machine.folder / "home" / "config" / "catalog.toml"
    text = catalog.read_text()
    foreign = text.replace('drafts = ["small"]\n', "").replace("0.0013", "0.0004")
    first, second = foreign.split("[models.small]")
    catalog.write_text(f"{first}[models.small]" + second.replace('family = "tale"', 'family = "saga"'))
    machine.server.repos["tales/draft-GGUF"] = Repo({"draft-Q8_0.gguf": without_a_token(DRAFT_BYTES)})
    (found,) = machine.json("plan", "--hub", TARGET)["candidates"]
    assert (found["name"], found["where"], found["is_good"], found["can_draft"]) == (DRAFT, "catalogue", False, True)
    catalog.write_text(
        f'{text}[models.tiny]\nfamily = "saga"\nrepo = "tales/tiny-GGUF"\nabout_gb = {{ Q8_0 = 0.0003 }}\n'
        'params = 0.0011\nlicense = "mit"\ncontext = 1024\n'
    )
    found = machine.json("plan", "--hub", TARGET)["candidates"]
    assert [one["name"] for one in found if one["where"] == "catalogue"] == [DRAFT]


def test_a_model_that_is_here_is_suggested_once_and_not_looked_at_on_the_hub(machine: Machine) -> None:
    """Neither it nor the target counts against the limit."""
    machine.server.repos["tales/storyteller-tiny-GGUF"] = Repo({"tiny-Q8_0.gguf": without_a_token(DRAFT_BYTES)})
    list_the_tales(machine)
    machine.pull(TARGET, DRAFT)
    here = ("hf:tales/draft-GGUF/sub/draft.Q8_0.gguf", "here")
    offline = machine.json("plan", "--hub", "--offline", TARGET)["candidates"]
    assert [(one["name"], one["where"]) for one in offline] == [here]
    found = machine.json("plan", "--hub", TARGET)["candidates"]
    assert [(one["name"], one["where"]) for one in found] == [here, ("hf:tales/storyteller-tiny-GGUF:Q8_0", "hub")]


def test_a_model_that_is_here_and_too_large_does_not_hide_what_pays(machine: Machine) -> None:
    """Another quantisation of it is in the catalogue, or on the hub; one here that does not fit hides its own.

    The files of three repositories are the same, and so one candidate.
    """
    large, other = DRAFT_BYTES + bytes(2_000_000), of_other_tokens()
    repos = machine.server.repos
    repos["tales/draft-GGUF"] = Repo({"draft-F16.gguf": large, "draft-Q8_0.gguf": DRAFT_BYTES})
    repos["tales/storyteller-tiny-GGUF"] = Repo({"tiny-F16.gguf": large, "tiny-Q4_K_M.gguf": DRAFT_BYTES})
    repos["tales/storyteller-odd-GGUF"] = Repo({"odd-F16.gguf": other, "odd-Q4_K_M.gguf": other})
    repos["tales/storyteller-one-GGUF"] = Repo({"one-F16.gguf": large})
    list_the_tales(machine)
    names = ("draft", "storyteller-tiny", "storyteller-odd", "storyteller-one")
    machine.pull(TARGET, *(f"hf:tales/{name}-GGUF:F16" for name in names))
    found = {one["name"]: one for one in machine.json("plan", "--hub", TARGET)["candidates"]}
    assert sorted(one["where"] for one in found.values()) == ["catalogue", "here", "here", "hub"]
    assert found[DRAFT]["verdict"] == found["hf:tales/storyteller-tiny-GGUF:Q4_K_M"]["verdict"] == "fits"
    offline = machine.json("plan", "--hub", "--offline", TARGET)["candidates"]
    assert [one["name"] for one in offline if one["where"] != "here"] == [DRAFT]


def test_the_catalogues_quantisation_is_not_said_to_be_elsewhere_when_it_is_here(machine: Machine) -> None:
    machine.server.repos["tales/draft-GGUF"] = Repo({"draft-Q8_0.gguf": DRAFT_BYTES + bytes(2_000_000)})
    list_the_tales(machine)
    machine.pull(TARGET, DRAFT)
    for args in ([], ["--offline"]):
        (one,) = machine.json("plan", "--hub", *args, TARGET)["candidates"]
        assert (one["name"], one["where"]) == ("hf:tales/draft-GGUF/draft-Q8_0.gguf", "here")
        assert "too large to pay" in one["verdict"]
