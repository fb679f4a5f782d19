"""Whatever localspec 0.1.0 refused is refused with the code that it had, but for the codes of CHANGELOG.md."""

from pathlib import Path

import pytest

from tests.cli.harness import PAIR, needs_pair, run_engine

REFUSED = [
    (words, int(code))
    for code, _, words in (
        line.partition(" ")
        for line in (Path(__file__).parent / "v0_1_0" / "exit_codes.txt").read_text("utf-8").splitlines()
    )
    if words != "calibrate"  # it measures the machine now
]
CHANGED = {
    "calibrate nosuch": 2,  # `plan --measure` does the work of three commands
    "doctor nosuch": 2,
    "pairs suggest nosuch": 2,
    "run -m storyteller -n 1 hi -f FILES/bin.txt": 2,  # a file that is no text, not a long prompt
    "run -m storyteller -n 1 hi --log-file FILES/no/x.log": 7,  # a file that cannot be written
    "bench storyteller --json FILES/no/b.json": 7,
    "bench storyteller --suite nosuch": 3,  # a name that nothing has
    "verify storyteller --suite nosuch": 3,
    "pairs rm storyteller": 11,  # it is not the person's own
    "pairs explain nosuch": 3,  # as of other commands
    "pairs search": 0,  # another name of `pairs list`
    "serve nosuch": 3,  # there was no server
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "bin.txt").write_bytes(b"\xff\x01\x9c\0\0" * 200)
    (tmp_path / "notgguf.gguf").write_bytes(b"hello world" * 100)
    (tmp_path / "trunc.gguf").write_bytes((PAIR / "target-q8_0.gguf").read_bytes()[:300000])
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "x.json").write_text("{}")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "suite.jsonl").write_text('{"a":1}\n')
    (tmp_path / "tmpl.jinja").write_text("{% for m in messages %}{{ m.content }}{% endif %}")
    (tmp_path / "exists.md").write_text("x")
    (tmp_path / "dir").mkdir()
    return tmp_path


@needs_pair
@pytest.mark.parametrize(("words", "code"), REFUSED, ids=[words for words, _ in REFUSED])
def test_the_code_is_that_of_before(words: str, code: int, files: Path) -> None:
    typed = words.replace("FILES", str(files)).split(" ")
    home = {"LOCALSPEC_HOME": str(files / "home"), "HF_HOME": str(files / "hf"), "HOME": str(files)}
    done = run_engine(*typed, env=home)
    assert done.returncode == CHANGED.get(words, code), done.stderr
    assert done.returncode == 0 or done.stderr.startswith(b"localspec: ")
