"""What the hub may answer, and what is then said: exit code, reason, and the next thing to do."""

import socket
import sys
from typing import Any

import pytest

from localspec.errors import IntegrityError, LocalspecError, NetworkError, UsageError
from localspec.models.hub.files import drafters, is_model, part_number, quant_of, select
from localspec.models.hub.remote import Hub
from localspec.models.names import HubName
from localspec.models.pull import make_plan
from tests.hub.machine import DRAFT, TARGET, Machine
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.server import Repo
from tests.recorded import recorded_expressions

MODEL = b"GGUF and so on"


def refused(machine: Machine, name: str, error: type[LocalspecError], *words: str) -> LocalspecError:
    with pytest.raises(LocalspecError) as caught:
        machine.plan(name)
    said = f"{caught.value.message} | {caught.value.hint}"
    assert type(caught.value) is error, said
    for word in words:
        assert word in said, said
    assert caught.value.hint
    assert said.isprintable()
    assert not list(machine.folder.rglob("*")), "planning writes nothing"
    return caught.value


def test_gated_says_which_page(machine: Machine) -> None:
    machine.server.repos["tales/storyteller-GGUF"].gate = "gated"
    page = f"{machine.server.endpoint}/tales/storyteller-GGUF"
    error = refused(machine, TARGET, NetworkError, "gated", f"open {page}", "HF_TOKEN")
    assert error.exit_code == 4
    assert error.detail["page"] == page


def test_private_and_missing(machine: Machine) -> None:
    machine.server.repos["tales/draft-GGUF"].gate = "private"
    assert refused(machine, DRAFT, NetworkError, "no repository tales/draft-GGUF", "private", "HF_TOKEN")
    assert refused(machine, "hf:no/body", NetworkError, "no repository no/body")


def test_a_revision_that_is_not_there(machine: Machine) -> None:
    assert refused(machine, "hf:tales/draft-GGUF@v9:Q8_0", NetworkError, "no such branch", "commits")


def test_a_token_that_is_not_accepted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrongwrong")
    error = refused(machine, TARGET, NetworkError, "does not accept the token")
    assert "wrongwrong" not in error.message + error.hint + str(error.detail)


def test_a_token_with_a_newline(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.server.repos["tales/storyteller-GGUF"].gate = "gated"
    monkeypatch.setenv("HF_TOKEN", "hf_right\r\n")
    machine.plan(TARGET)
    monkeypatch.setenv("HF_TOKEN", "hf_rïght")  # which no header can carry
    error = refused(machine, TARGET, NetworkError)
    assert "ght" not in (error.message + error.hint).replace("right", "")


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (400, {}, ["refuses the request for tales/storyteller-GGUF (status 400)"]),
        (401, {"X-Error-Message": "Invalid credentials in Authorization header"}, ["does not accept the token"]),
        (403, {}, ["refuses access", "HF_TOKEN"]),
        (404, {}, ["does not find"]),
        (429, {"Retry-After": "300"}, ["fewer requests for 300 s"]),
        (429, {"Retry-After": "21"}, ["fewer requests for 21 s"]),
        (429, {"Retry-After": "soon"}, ["asks for fewer requests |"]),
        (429, {"RateLimit": '"api";r=0;t=55'}, ["fewer requests for 55 s"]),
        (429, {"RateLimit": '"api";r=0;t=55', "Retry-After": "60"}, ["fewer requests for 60 s"]),
        (429, {"RateLimit": '"api";r=7;t=55'}, ["asks for fewer requests |"]),
        (429, {"RateLimit": f'"api";r=0;t={"9" * 400}'}, ["asks for fewer requests |"]),
        (500, {"RateLimit": '"api";r=0;t=55'}, ["status 500"]),
        (500, {}, ["status 500", "try again later"]),
        (503, {}, ["status 503"]),
        (407, {}, ["proxy needs a login"]),
        (418, {}, ["status 418"]),
    ],
)
def test_statuses(machine: Machine, status: int, headers: dict[str, str], words: list[str]) -> None:
    machine.server.faults.api = [(status, headers)] * 10
    error = refused(machine, TARGET, NetworkError, *words)
    assert (error.exit_code, error.detail) == (4, {"status": status})
    asked = len([one for one in machine.server.requests if one.server == "hub"])
    assert machine.pauses in ([], [0.5, 1.0, 2.0]), "a long wait is told, not taken"
    assert asked == len(machine.pauses) + 1


def test_a_server_that_fails_twice(machine: Machine) -> None:
    """As long as it may ask us to wait, it is waited for."""
    machine.server.faults.api = [(500, {}), (429, {"Retry-After": "20"})]
    machine.plan(TARGET)
    assert machine.pauses == [0.5, 20.0]


def test_a_portal_that_wants_a_login(machine: Machine) -> None:
    machine.server.faults.html = True
    assert refused(machine, TARGET, NetworkError, "does not answer as the hub does", "browser")


@pytest.mark.parametrize(
    "answer", [{}, {"id": 1}, {"id": "x/y", "sha": "../..", "siblings": []}, [], None, {"siblings": 3}]
)
def test_answers_of_another_shape(machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    from tests.hub import server

    monkeypatch.setattr(server._Hub, "_info", lambda handler, *_: handler.send_json(answer))
    assert refused(machine, TARGET, NetworkError)


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [
        ("", UsageError),
        ("localhost", UsageError),
        ("ftp://x", UsageError),
        ("http://", UsageError),
        ("http://[", UsageError),
        ("http://x:y", UsageError),
        ("http://x:0", UsageError),
        ("\x1b]0;x", UsageError),
        ("http://name.invalid", NetworkError),
        ("closed", NetworkError),
        ("silent", NetworkError),
    ],
)
def test_endpoints(
    endpoint: str, error: type[LocalspecError], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    def ask(address: str) -> None:
        hub = Hub(address, machine.pauses.append)
        make_plan([HubName("a/b")], hub, machine.cache, machine.receipts)

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if endpoint == "closed":
            silent.close()
        with pytest.raises(error) as caught:
            ask(address if endpoint in ("closed", "silent") else endpoint)
    assert caught.value.hint
    assert (caught.value.message + caught.value.hint).isprintable()


@pytest.mark.parametrize(
    "name",
    [
        "../../evil-Q8_0.gguf",
        "../../.bashrc",
        "/etc/x-Q8_0.gguf",
        "C:\\x-Q8_0.gguf",
        "\\\\host\\share\\x.gguf",
        "a/../../b-Q8_0.gguf",
        "a//b.gguf",
        "evil\x1b[2J-Q8_0.gguf",
        "two\nlines.gguf",
        f"{'x' * 300}.gguf",
    ],
)
def test_names_that_leave_the_cache(machine: Machine, name: str) -> None:
    machine.server.repos["tales/draft-GGUF"].files[name] = MODEL
    error = refused(machine, DRAFT, IntegrityError, "refused", "tales/draft-GGUF")
    assert error.exit_code == 5
    assert error.detail["repo"] == "tales/draft-GGUF"
    assert error.detail["file"]


def test_odd_names_that_do_no_harm(machine: Machine) -> None:
    files = machine.server.repos["tales/draft-GGUF"].files
    files |= {"bild: a.png": b"", "ä ö (1).gguf": MODEL, "sub": b"", "a+b-Q4_0.gguf": MODEL}
    assert len(machine.plan(DRAFT).items) == 1


@pytest.mark.parametrize("etag", ["../../x", "abc", "0" * 63 + "g", "A" * 64, "0" * 40, ""])
def test_hashes_that_are_none(machine: Machine, etag: str) -> None:
    machine.server.repos["tales/draft-GGUF"].etags["sub/draft.Q8_0.gguf"] = etag or " "
    assert refused(machine, DRAFT, IntegrityError, "no hash")


def test_a_file_without_a_hash(machine: Machine) -> None:
    machine.server.repos["tales/draft-GGUF"].lfs = False
    assert refused(machine, DRAFT, IntegrityError, "no hash").detail["sha256"] == ""


OTHER_HASH = {"lfs": {"sha256": "0" * 64, "size": 1, "pointerSize": 134}}


@pytest.mark.parametrize("changed", [OTHER_HASH, {"size": None}], ids=str)
def test_two_hashes_or_no_size(machine: Machine, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]) -> None:
    """The list of the repository tells otherwise than the file's own head, or not how long it is."""
    from tests.hub import server

    told = server._Hub._file
    monkeypatch.setattr(server._Hub, "_file", lambda handler, repo, name: told(handler, repo, name) | changed)
    error = refused(machine, DRAFT, IntegrityError, "no hash")
    assert error.detail["etag"] == machine.server.repos["tales/draft-GGUF"].etag("sub/draft.Q8_0.gguf")


def test_a_file_that_is_gone_between_the_list_and_the_question(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.hub import server

    head = {"X-Error-Code": "EntryNotFound"}
    monkeypatch.setattr(server._Hub, "_resolve", lambda handler, *_: handler.send(404, **head))
    assert refused(machine, DRAFT, NetworkError, "a file of tales/draft-GGUF is no longer there", "tree/main")


def test_a_file_too_large_for_a_plain_download(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from localspec.models.hub import remote

    assert remote.MAX_PLAIN == 50_000_000_000
    monkeypatch.setattr(remote, "MAX_PLAIN", len(DRAFT_BYTES))
    machine.plan(DRAFT)
    monkeypatch.setattr(remote, "MAX_PLAIN", len(DRAFT_BYTES) - 1)
    program = tmp_path_factory.mktemp("bin") / "hf"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    error = refused(machine, DRAFT, NetworkError, "50 GB")
    assert error.hint == f"{program} download tales/draft-GGUF sub/draft.Q8_0.gguf"
    commit = machine.server.repos["tales/draft-GGUF"].commit
    error = refused(machine, f"hf:tales/draft-GGUF@{commit}:Q8_0", NetworkError, "50 GB")
    assert error.hint.endswith(f" --revision {commit}")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert refused(machine, DRAFT, NetworkError, "50 GB").hint.startswith("hf download tales/")


NAMES = [
    "README.md",
    "MMPROJ-model-F16.gguf",
    "imatrix.gguf",
    "MTP/mtp-model-Q8_0.gguf",
    "model-Q4_K_M.gguf",
    "model-Q8_0.gguf",
    "model-IQ2_XXS.gguf",
    "UD/model-UD-Q4_K_XL.gguf",
    "F16/model-00001-of-00002.gguf",
    "F16/model-00002-of-00002.gguf",
    "broken-Q6_K-00001-of-00003.gguf",
    "broken-Q6_K-00003-of-00003.gguf",
    "one-Q5_0.gguf",
    "two-Q5_0.gguf",
    "twice-Q2_K-00001-of-00002.gguf",
    "twice-Q2_K-00002-of-00002.gguf",
    "twice-Q2_K-00001-of-00003.gguf",
]
MANY = [f"{i}-Q8_0.gguf" for i in range(40)]


DRAFTERS = ["m-Q4_0.gguf", "m-Q8_0.gguf", "MTP/m-mtp-Q8_0.gguf", "m-eagle3-Q8_0.gguf", "draft/m-draft-Q4_0.gguf"]


def test_a_drafter_of_another_quantisation_is_better_than_none() -> None:
    found = drafters(["m-Q8_0.gguf", "m-draft-Q4_0.gguf", "m-draft-Q2_K.gguf"], HubName("o/r", quant="Q8_0"))
    assert [one.file for one in found] == ["m-draft-Q2_K.gguf", "m-draft-Q4_0.gguf"]


@pytest.mark.parametrize(("name", "number"), [("x-00003-of-00004.gguf", 3), ("x-00002-of-4.gguf", 1), ("x.gguf", 1)])
def test_the_number_of_a_part(name: str, number: int) -> None:
    assert part_number(name) == number


def test_the_only_model_needs_no_quantisation(machine: Machine) -> None:
    machine.server.repos["o/r"] = Repo({"model-Q2_K.gguf": MODEL, "mmproj-F16.gguf": MODEL})
    assert [item.file.name for item in machine.plan("hf:o/r").items] == ["model-Q2_K.gguf"]


test_what_is_recorded = recorded_expressions(
    __file__, HubName, drafters, is_model, quant_of, select, DRAFTERS=DRAFTERS, MANY=MANY, NAMES=NAMES
)
