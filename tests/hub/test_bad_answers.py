"""What a hub, a network or a cache can do to `localspec pull`: the exit code, one line that helps, and nothing kept."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.harness import REAL, TIMEOUT, assert_one_line, environment
from tests.cli.sandbox import bound
from tests.hub.machine import DRAFT, Machine
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.server import Repo

Prepare = Callable[[Machine], object]
REPO, FILE = "tales/draft-GGUF", "sub/draft.Q8_0.gguf"


def pull(machine: Machine, name: str = DRAFT) -> subprocess.CompletedProcess[bytes]:
    return machine.call("pull", "-q", name)


def pull_apart(machine: Machine, name: str = DRAFT, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Pull in a process with an environment of its own, as a user whom permissions bind."""
    return subprocess.run(
        [*REAL, "pull", "-q", name], input=b"", capture_output=True, timeout=TIMEOUT, preexec_fn=bound,
        env=environment({**machine.env, **env}), cwd=machine.folder,
    )  # fmt: skip


def assert_refused(machine: Machine, done: subprocess.CompletedProcess[bytes], code: int, *words: str) -> None:
    """Check the line, that no model is there now, and that nothing lies outside the two folders that are ours."""
    line = assert_one_line(done, code, *words)
    assert " — try: " in line
    assert line.rstrip("\n").isprintable()
    assert machine.links() == []
    assert {path.name for path in machine.folder.iterdir()} <= {"hf", "home", "elsewhere"}
    assert not list(machine.folder.rglob("*bashrc*"))


@pytest.mark.parametrize(
    "name",
    ["../../.bashrc", "/etc/x", "C:\\x-Q8_0.gguf", "x\x1b[2J\n.gguf"],
    ids=["above", "absolute", "a drive", "escapes"],
)
def test_a_name_that_leaves_the_cache(machine: Machine, name: str) -> None:
    machine.server.repos[REPO].files[name] = b"GGUF"
    assert_refused(machine, pull(machine), 5, "refused", REPO)


@pytest.mark.parametrize("etag", ["../../x", "A" * 64], ids=["a path", "no hexadecimal"])
def test_a_hash_that_is_none(machine: Machine, etag: str) -> None:
    machine.server.repos[REPO].etags[FILE] = etag
    assert_refused(machine, pull(machine), 5, "no hash")


def _folder(machine: Machine) -> Path:
    return machine.cache.folder(REPO)


def _link_out(machine: Machine, folder: Path) -> None:
    (machine.folder / "elsewhere").mkdir()
    folder.parent.mkdir(parents=True)
    folder.symlink_to(machine.folder / "elsewhere")


def _snapshot(machine: Machine) -> Path:
    return _folder(machine) / "snapshots" / machine.server.repos[REPO].commit


def _blobs_elsewhere(machine: Machine) -> None:
    _link_out(machine, _folder(machine) / "blobs")


def _snapshot_elsewhere(machine: Machine) -> None:
    _link_out(machine, _snapshot(machine) / "sub")


def _a_folder_in_its_place(machine: Machine) -> None:
    (_snapshot(machine) / FILE / "x").mkdir(parents=True)


def _read_only(machine: Machine) -> None:
    machine.cache.root.mkdir(parents=True)
    machine.cache.root.chmod(0o555)


@pytest.mark.parametrize(
    ("prepare", "code", "text"),
    [
        (_blobs_elsewhere, 5, "leads out of the cache"),
        (_snapshot_elsewhere, 5, "leads out of the cache"),
        (_a_folder_in_its_place, 7, "cannot write"),
        (_read_only, 7, "cannot write"),
    ],
)
def test_a_cache_that_is_not_as_it_should_be(machine: Machine, prepare: Prepare, code: int, text: str) -> None:
    prepare(machine)
    assert_refused(machine, pull_apart(machine), code, text, "HF_HUB_CACHE")
    assert not list((machine.folder / "elsewhere").glob("*"))


def _statuses(status: int, **headers: str) -> Prepare:
    told = {name.replace("_", "-"): text for name, text in headers.items()}
    return lambda machine: machine.server.faults.api.extend([(status, told)] * 9)


def _gate(name: str) -> Prepare:
    return lambda machine: setattr(machine.server.repos[REPO], "gate", name)


def _fault(**faults: object) -> Prepare:
    return lambda machine: [setattr(machine.server.faults, name, value) for name, value in faults.items()]


ANSWERS: dict[str, tuple[Prepare, int, list[str]]] = {
    "gated": (_gate("gated"), 4, ["is gated", f"/{REPO}", "HF_TOKEN"]),
    "private": (_gate("private"), 4, ["no repository", "private"]),
    "403": (_statuses(403), 4, ["refuses access"]),
    "429": (_statuses(429, Retry_After="300"), 4, ["fewer requests for 300 s", "wait"]),
    "500": (_statuses(500), 4, ["status 500", "try again later"]),
    "a portal": (_fault(html=True), 4, ["does not answer as the hub does", "browser"]),
    "an answer without an end": (_fault(endless=b'[{"id": "a/b"}, ' * 4096), 4, ["does not end within 64 MiB or 60 s"]),
    "a file that is gone": (_fault(cdn=[(404, {})]), 4, [f"does not find {REPO}"]),
    "a body that is too long": (_fault(surplus=b"x"), 5, ["more than 1", "removed"]),
    "a body that is too short": (_fault(lengths=[1000] + [0] * 20), 4, ["after 1000 bytes"]),
    "other bytes after a break": (_fault(cuts=[9000], lies=True), 5, ["hash", "removed"]),
}


@pytest.mark.parametrize(("prepare", "code", "words"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_no_model(machine: Machine, prepare: Prepare, code: int, words: list[str]) -> None:
    prepare(machine)
    assert_refused(machine, pull(machine), code, *words)


@pytest.mark.parametrize(
    ("env", "code", "words"),
    [
        ({"HF_ENDPOINT": "garbage"}, 2, ["HF_ENDPOINT", "not an address"]),
        ({"HF_ENDPOINT": "http://["}, 2, ["HF_ENDPOINT", "no valid value"]),
        ({"HF_ENDPOINT": "http://\x1b]0;x\x07"}, 2, ["HF_ENDPOINT"]),
        ({"HF_ENDPOINT": "https://u:secret@{host}"}, 4, ["not trusted", "https://…@127.0.0.1"]),
        ({"HF_ENDPOINT": "https://hub.invalid", "HTTPS_PROXY": "http://{host}"}, 4, ["proxy needs a login"]),
        ({"HF_HUB_DOWNLOAD_TIMEOUT": "soon\x1b"}, 2, ["HF_HUB_DOWNLOAD_TIMEOUT"]),
        ({"HF_TOKEN": "hf_wrong"}, 4, ["does not accept the token"]),
        ({"HF_TOKEN": "hf_one\nX-Evil: two"}, 4, []),
    ],
    ids=lambda value: ascii(" ".join(map("=".join, value.items())))[1:40] if isinstance(value, dict) else "",
)
def test_an_environment_that_leads_nowhere(machine: Machine, env: dict[str, str], code: int, words: list[str]) -> None:
    host = machine.server.endpoint.removeprefix("http://")
    done = pull_apart(machine, **{name: text.replace("{host}", host) for name, text in env.items()})
    assert_refused(machine, done, code, *words)
    assert not {b"hf_", b"secret"} & set(re.findall(rb"hf_|secret", done.stderr)), "no secret is repeated"


def test_a_token_with_a_newline_behind_it_is_taken(machine: Machine) -> None:
    machine.server.repos[REPO].gate = "gated"
    assert pull_apart(machine, HF_TOKEN="hf_right\r\n").returncode == 0
    assert machine.found(DRAFT) == [DRAFT_BYTES]


def test_a_server_that_ignores_ranges_gives_the_whole_again(machine: Machine) -> None:
    machine.server.faults.ignores_ranges = True
    machine.server.faults.cuts = [500_000]
    assert pull(machine).returncode == 0
    assert machine.found(DRAFT) == [DRAFT_BYTES]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:many/files:Q3_K_S", ["does not have the quantisation Q3_K_S; it has Q8_0"]),
        ("hf:many/files:Q8_0", ["7 models of the quantisation Q8_0", "m0-Q8_0.gguf", "m6-Q8_0.gguf"]),
        ("hf:many/files/none.gguf", ["has no file none.gguf", "try: hf:many/files/m"]),
    ],
    ids=["none fits", "seven fit", "no such file"],
)
def test_a_name_that_fits_none_or_several_lists_them(machine: Machine, name: str, words: list[str]) -> None:
    machine.server.repos["many/files"] = Repo({f"m{i}-Q8_0.gguf": b"GGUF" for i in range(7)})
    assert_refused(machine, pull(machine, name), 2, *words)
