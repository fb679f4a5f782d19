"""`localspec pull` and `run -m` with models that are not here: the real program against the hub on loopback."""

import json
import os
import resource
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.cli.harness import REAL, TIMEOUT, Terminal, assert_one_line, environment, wait_for
from tests.hub.machine import DRAFT, PAIR, PARTS, TARGET, Machine, sha256
from tests.hub.models import DRAFT as DRAFT_BYTES
from tests.hub.models import TARGET as TARGET_BYTES
from tests.hub.models import of_other_tokens, parts

STORY = ["-n", "24", "--seed", "3", "-q", "Once upon a time"]


def test_from_nothing_to_a_story_in_one_command(machine: Machine) -> None:
    """And then without the hub, and the text is that of the bundled files."""
    first = machine.call_apart("run", "-y", "-m", PAIR, *STORY)
    assert (first.returncode, first.stderr) == (0, b"")
    asked = {one.path.split("/")[1] for one in machine.server.requests}
    assert asked == {"api", "tales"}
    assert all("/api/models/tales/" in one.path for one in machine.server.requests if one.path.startswith("/api"))
    assert machine.call("run", *STORY).stdout == first.stdout
    n = len(machine.server.requests)
    for offline in (["--offline"], []):
        done = machine.call("run", "-m", PAIR, *offline, *STORY)
        assert (done.returncode, done.stdout) == (0, first.stdout)
    assert len(machine.server.requests) == n, "what is here needs no hub"


def test_a_model_in_parts_runs_from_nothing(machine: Machine) -> None:
    """All parts are pulled, the first is opened, and the text is that of the model in one file."""
    made = machine.call("run", "-y", "-m", f"{PARTS}+{DRAFT}", *STORY)
    assert (made.returncode, made.stderr) == (0, b"")
    assert made.stdout == machine.call("run", *STORY).stdout
    assert f"and {len(parts()) - 1} more".encode() in machine.call("show", PARTS).stdout


def test_the_name_on_screen_is_canonical(machine: Machine) -> None:
    machine.pull(TARGET, DRAFT)
    short = {repo: machine.server.repos[repo].commit[:7] for repo in machine.server.repos}
    expected = (
        f"hf:tales/storyteller-GGUF@{short['tales/storyteller-GGUF']}:Q8_0"
        f"+hf:tales/draft-GGUF@{short['tales/draft-GGUF']}:Q8_0"
    )
    made = machine.json("run", "-m", "https://huggingface.co/tales/storyteller-GGUF+tales/draft-GGUF:q8_0", *STORY)
    assert made["pair"]["name"] == expected


def test_pull_says_what_it_did(machine: Machine) -> None:
    plan = machine.json("pull", PAIR, PARTS, "--dry-run")
    assert plan["dry_run"] is True
    assert plan["download_bytes"] == len(TARGET_BYTES) + len(DRAFT_BYTES) + sum(map(len, parts().values()))
    assert not (machine.folder / "hf").exists()
    made = machine.json("pull", PAIR)
    assert [one["bytes"] for one in made["files"]] == [len(TARGET_BYTES), len(DRAFT_BYTES)]
    for one, data in zip(made["files"], (TARGET_BYTES, DRAFT_BYTES), strict=True):
        assert one["sha256"] == sha256(data)
        assert Path(one["path"]).read_bytes() == data
    again = machine.json("pull", PAIR)
    assert again["download_bytes"] == 0
    assert machine.server.sent == len(TARGET_BYTES) + len(DRAFT_BYTES)
    said = machine.call("pull", TARGET).stdout.decode()
    assert said.count("\n") == 1
    assert "already here, hash correct" in said


def test_progress_is_sparse_lines_in_a_pipe_and_bars_on_a_terminal(machine: Machine) -> None:
    machine.server.faults.rate = 4e6
    done = machine.call("pull", TARGET)
    lines = done.stderr.decode().splitlines()
    assert 2 <= len(lines) <= 12
    assert all(line.startswith("pulled ") and "MB/s" in line for line in lines)
    assert "\x1b" not in done.stderr.decode()
    terminal = Terminal(["pull", "-y", DRAFT], program=REAL, env=machine.env, keeps_frames=True)
    assert terminal.wait() == 0
    frames = "\n".join("\n".join(frame) for frame in terminal.frames)
    assert "draft.Q8_0.gguf" in frames
    assert terminal.lines[-1].endswith("pulled, hash correct")
    assert not any("draft.Q8_0.gguf " in line for line in terminal.lines), "the bars are gone"
    terminal.assert_clean()


def shows(terminal: Terminal, text: str) -> bool:
    return text in terminal.text


def test_a_terminal_is_asked(machine: Machine) -> None:
    question = "Download 6.5 MB for "
    for answer, code in (("n\n", 11), ("\x04", 11), ("y\n", 0)):
        terminal = Terminal(["run", "-m", PAIR, "--no-stats", *STORY], program=REAL, env=machine.env, columns=200)
        terminal.wait_for(partial(shows, terminal, question))
        assert not machine.links()
        terminal.type(answer)
        assert terminal.wait() == code, terminal.text
    assert machine.found(TARGET) == [TARGET_BYTES]


def test_nobody_to_ask(machine: Machine) -> None:
    assert_one_line(machine.call("run", "-m", PAIR, "hi"), 11, "6.5 MB", "localspec pull hf:tales/", "-y")
    chat = machine.call("chat", "-m", TARGET, stdin=b"hi\n")
    assert_one_line(chat, 11, "5.2 MB")
    tune = machine.call("early-exit", "tune", TARGET)
    assert_one_line(tune, 3, "not on this machine", f"localspec pull {TARGET}")


def test_without_the_hub_and_without_the_files(machine: Machine) -> None:
    for args, env in ((["--offline"], {}), ([], {"HF_HUB_OFFLINE": "1"}), ([], {"LOCALSPEC_OFFLINE": "1"})):
        done = machine.call_apart("run", "-y", "-m", PAIR, *args, "hi", env=env)
        assert_one_line(done, 3, "not on this machine", "localspec pull")
    for command in (["run", "-y", "-m", PAIR, "hi"], ["pull", PAIR], ["plan", "--hub", TARGET]):
        said = assert_one_line(machine.call_apart(*command, env={"HF_HUB_OFFLINE": "1"}), 3, "not on this machine")
        assert " — try: unset HF_HUB_OFFLINE, then localspec pull hf:tales/" in said
    for env, named in (
        ({"TRANSFORMERS_OFFLINE": "1"}, "TRANSFORMERS_OFFLINE"),
        ({"TRANSFORMERS_OFFLINE": "yes", "HF_HUB_OFFLINE": "on"}, "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE"),
        ({"TRANSFORMERS_OFFLINE": "0", "HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
    ):
        said = assert_one_line(machine.call_apart("pull", PAIR, env=env), 3, "not on this machine")
        assert f" — try: unset {named}, then localspec pull hf:tales/" in said
    machine.pull(TARGET)
    done = machine.call("run", "-y", "-m", PAIR, "--offline", "hi")
    assert_one_line(done, 3, "hf:tales/draft-GGUF:Q8_0 is not on this machine")
    assert machine.call("run", "-m", f"{PAIR.partition('+')[0]}+none", "--offline", *STORY).returncode == 0
    assert_one_line(machine.call("pull", "--offline", PAIR), 3, "draft-GGUF")
    assert machine.call("pull", "--offline", TARGET).returncode == 0


def test_a_part_that_is_missing_is_pulled(machine: Machine) -> None:
    machine.pull(PARTS)
    file = sorted(machine.cache.all(), key=lambda one: one.name)[1]
    file.link.unlink()
    file.blob.unlink()
    assert_one_line(machine.call("pull", "--offline", PARTS), 3)
    assert machine.call("pull", PARTS).returncode == 0
    assert machine.found(PARTS) == list(parts().values())


def test_bytes_that_are_here_need_no_question(machine: Machine) -> None:
    """Pulled as a commit, wanted as the branch: only the hub knows that they are the same."""
    machine.pull(f"hf:tales/storyteller-GGUF@{machine.server.repos['tales/storyteller-GGUF'].commit}:Q8_0")
    assert machine.found(TARGET) == []
    n = machine.server.sent
    assert machine.call("run", "-m", TARGET, *STORY).returncode == 0
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert machine.server.sent == n


def test_other_options_are_judged_before_anything_is_downloaded(machine: Machine) -> None:
    for args in (["--temp", "-1", "hi"], ["--verify", "bloc", "hi"], [""]):
        assert_one_line(machine.call("run", "-y", "-m", PAIR, *args), 2)
    assert_one_line(machine.call("chat", "-y", "-m", PAIR, "--top-p", "3"), 2)
    for command, code, words in (
        ("race PAIR", 2, "there is no prompt"),
        ("race PAIR hi --raw --system x", 2, "--raw takes no --system"),
        ("race PAIR hi --verify bloc", 2, "--verify block"),
        ("bench PAIR --suite nope", 3, "no suite 'nope'"),
        ("bench PAIR --methods magic", 2, "magic"),
        ("bench PAIR --markdown /", 7, "cannot write --markdown"),
        ("bench PAIR --baseline none.json", 3, "cannot read none.json"),
        ("verify PAIR --temp 0", 2, "leaves no distribution to test"),
        ("verify PAIR --suite nope", 3, "no suite 'nope'"),
    ):
        args = [PAIR if word == "PAIR" else word for word in command.split()]
        assert_one_line(machine.call(*args, "-y"), code, words)
    assert not machine.server.requests


def test_killed_in_the_middle_and_run_again(machine: Machine) -> None:
    """Nothing half done is taken for whole, and what had come is not asked for again."""
    machine.server.faults.rate = 3e6
    left = 0

    def has_come(size: int) -> bool:
        return sum(path.stat().st_size for path in machine.partials()) > size

    for more in (100_000, 700_000, 1_100_000):
        process = machine.start("pull", TARGET)
        wait_for(partial(has_come, left + more))
        process.kill()
        process.communicate()
        assert machine.links() == []
        left = sum(path.stat().st_size for path in machine.partials())
    machine.server.faults.rate = 0
    made = machine.json("pull", TARGET)
    assert made["files"][0]["resumed_bytes"] == left
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert not machine.partials()
    assert machine.server.downloads()[-1].range == f"bytes={left}-"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(machine: Machine, number: signal.Signals, code: int) -> None:
    machine.server.faults.rate = 1e6
    process = machine.start("pull", TARGET)
    wait_for(lambda: machine.server.sent > 300_000)
    process.send_signal(number)
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == code
    assert b"Traceback" not in said
    if number is signal.SIGINT:
        assert said.endswith(b"continues\nstopped\n")
    assert machine.links() == []
    assert machine.partials()


def test_control_c_on_a_terminal_leaves_it_clean(machine: Machine) -> None:
    machine.server.faults.rate = 1e6
    terminal = Terminal(["pull", "-y", TARGET], program=REAL, env=machine.env)
    terminal.wait_for(lambda: machine.server.sent > 300_000)
    terminal.type("\x03")
    assert terminal.wait() == 130
    assert "continues" in terminal.text
    terminal.assert_clean()


def test_a_silent_server_does_not_hold_control_c(machine: Machine) -> None:
    goes_on = machine.server.faults.stalls = threading.Event()
    process = machine.start("pull", TARGET)
    wait_for(lambda: machine.server.downloads())
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    goes_on.set()


def test_two_pulls_at_once(machine: Machine) -> None:
    machine.server.faults.rate = 4e6
    both = [machine.start("pull", TARGET) for _ in range(2)]
    assert [process.wait(TIMEOUT) for process in both] == [0, 0]
    for process in both:
        process.communicate()
    assert machine.found(TARGET) == [TARGET_BYTES]
    assert machine.server.sent == len(TARGET_BYTES), "one brought it, the other waited"


def test_a_file_that_may_not_grow(machine: Machine) -> None:
    """What a full disk comes to where none can be mounted: the kernel refuses the write."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

    done = subprocess.run(
        [*REAL, "pull", "-q", TARGET],
        capture_output=True,
        timeout=TIMEOUT,
        preexec_fn=limit,
        env=environment(machine.env),
    )
    assert_one_line(done, 7, "full", "the 2 MB that came", "are kept", "localspec rm hf:tales/", "HF_HUB_CACHE")
    assert machine.links() == []
    assert machine.json("pull", TARGET)["files"][0]["resumed_bytes"] == 2_000_000


def test_wrong_bytes(machine: Machine) -> None:
    machine.server.faults.lies = True
    assert_one_line(machine.call("pull", "-q", TARGET), 5, "hash", "removed")
    assert machine.links() == machine.partials() == []
    assert_one_line(machine.call("run", "-q", "-y", "-m", TARGET, "hi"), 5, "hash")


def test_a_pair_that_does_not_fit_is_said(machine: Machine) -> None:
    machine.server.repos["tales/draft-GGUF"].files["sub/draft.Q8_0.gguf"] = of_other_tokens()
    assert_one_line(machine.call("pull", "-q", PAIR), 6, "does not fit", "they share", "of the target's 4093 tokens")
    assert len(machine.links()) == 2, "the files are right, and stay"


def test_a_draft_of_another_vocabulary_is_a_warning(machine: Machine) -> None:
    data = DRAFT_BYTES.replace(b"\xc4\xa0the", b"\xc4\xa0thx", 1)  # one token of the vocabulary
    assert data != DRAFT_BYTES
    machine.server.repos["tales/draft-GGUF"].files["sub/draft.Q8_0.gguf"] = data
    (warning,) = machine.json("pull", PAIR)["warnings"]
    assert warning.startswith("the draft has another vocabulary: it drafts 100 % of the target's tokens, which write 9")


def test_a_file_that_changed_since_is_not_loaded(machine: Machine) -> None:
    machine.pull(TARGET)
    blob = next(iter(machine.cache.all())).blob
    run = ["run", "--offline", "-m", TARGET, *STORY]
    os.utime(blob, (1, 1))
    assert machine.call(*run).returncode == 0, "hashed again, it is the same"
    data = bytearray(TARGET_BYTES)
    data[-100] ^= 1
    blob.write_bytes(data)
    assert_one_line(machine.call(*run), 5, "has changed", f"localspec pull {TARGET}")
    assert_one_line(machine.call("pull", "-q", TARGET), 5, "damaged", "removed")
    assert machine.call("pull", "-q", TARGET).returncode == 0
    assert machine.found(TARGET) == [TARGET_BYTES]


def test_errors_in_json(machine: Machine) -> None:
    machine.server.repos["tales/storyteller-GGUF"].gate = "gated"
    error = machine.json("pull", TARGET, code=4)["error"]
    assert (error["code"], error["kind"], error["detail"]["reason"]) == (4, "network", "gated")
    assert "open http://" in error["hint"]
    assert machine.json("run", "-m", TARGET, "hi", code=4)["error"]["kind"] == "network"
    assert machine.json("pull", "hf:tales/draft-GGUF:Q3_K_S", code=2)["error"]["kind"] == "usage"


def test_what_a_server_says_reaches_no_terminal(machine: Machine) -> None:
    header = {"X-HF-Warning": "hf; \x1b[2J look here", "X-Error-Message": "\x1b]0;title\x07 no"}
    machine.server.faults.api = [(403, header)] * 9
    done = machine.call("pull", TARGET)
    assert_one_line(done, 4, "refuses access")
    assert b"\x1b" not in done.stderr


def test_ls_and_rm(machine: Machine) -> None:
    from huggingface_hub import hf_hub_download

    assert b"no models" in machine.call("ls").stdout
    machine.call("pull", "-q", PAIR)
    hf_hub_download(
        "tales/parts-GGUF", "Q8_0/storyteller-Q8_0-00001-of-00003.gguf", cache_dir=machine.cache.root,
        endpoint=machine.server.endpoint,
    )  # fmt: skip
    listed = machine.json("ls")["models"]
    assert [(one["repo"], one["bytes"], one["pulled"], one["verified"]) for one in listed] == [
        ("tales/draft-GGUF", len(DRAFT_BYTES), True, True),
        ("tales/storyteller-GGUF", len(TARGET_BYTES), True, True),
    ], "a model with missing parts is no model"
    name = listed[1]["name"]
    assert_one_line(machine.call("rm", name), 11, "-y")
    assert machine.json("rm", "--dry-run", name)["freed_bytes"] == len(TARGET_BYTES)
    assert machine.found(TARGET)
    assert machine.call("rm", "-y", name).stdout == b"removed 1 file, 5.2 MB\n"
    assert not machine.found(TARGET)
    assert not (machine.cache.root / "models--tales--storyteller-GGUF").exists()
    assert_one_line(machine.call("rm", "-y", "hf:tales/parts-GGUF"), 11, "not pulled by localspec", "--force")
    assert machine.call("rm", "-y", "--force", "hf:tales/parts-GGUF").returncode == 0
    assert machine.links() == ["sub/draft.Q8_0.gguf"]


def test_rm_keeps_bytes_that_another_commit_uses(machine: Machine) -> None:
    machine.pull(DRAFT)
    old = machine.server.repos["tales/draft-GGUF"].commit
    machine.server.repos["tales/draft-GGUF"].commit = "f" * 40
    machine.pull(DRAFT)
    machine.call("rm", "-y", f"hf:tales/draft-GGUF@{old}:Q8_0")
    assert machine.found(DRAFT) == [DRAFT_BYTES]
    machine.call("rm", "-y", DRAFT)
    assert machine.links() == []
    assert not list(machine.cache.root.glob("*/blobs/*"))


def test_ls_tells_of_what_was_interrupted(machine: Machine) -> None:
    path = machine.cache.blob("tales/draft-GGUF", sha256(DRAFT_BYTES))
    path.parent.mkdir(parents=True)
    path.with_name(path.name + ".localspec-part").write_bytes(b"x" * 1_000_000)
    assert "interrupted downloads: 1, 1.0 MB" in machine.call("ls").stdout.decode()
    assert machine.json("rm", "-y", "hf:tales/draft-GGUF")["freed_bytes"] == 1_000_000
    assert not machine.partials()


def test_help_and_version_stay_light() -> None:
    """Neither the hub's library nor a terminal's is loaded before a command needs it."""
    script = (
        "import sys, contextlib\n"
        "from localspec.cli.app import call\n"
        "from localspec.cli.console import Console\n"
        "for args in (['--help'], ['run', '--help'], ['pull', '--help'], ['pairs', '--help']):\n"
        "    with contextlib.suppress(SystemExit, Exception): call(args, Console())\n"
        "print([name for name in ('huggingface_hub', 'httpx', 'httpx2', 'rich', 'tomlkit', 'llama_cpp') "
        "if name in sys.modules], file=sys.stderr)\n"
    )
    command = [REAL[0], "-c", script]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, env=environment(), cwd=os.getcwd())
    assert json.loads(done.stderr.decode().replace("'", '"')) == []
