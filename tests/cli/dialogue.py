"""Dialogues with the command line: text files that hold what is typed, what is written, and the exit code.

    # A line that begins a dialogue: in a folder and a home of its own, and says what it shows.
    > own/config/config.toml        a file with the lines below it
    | temp = -1
    $ localspec run hi               the scripted engine of tests/cli/fakes.py; `$$` takes the real one
    < a line of standard input
    ~ $ a line on standard output that begins as one of these does
    ! a line on standard error
    = 2                              the exit code, where it is not 0
    $ localspec run --json hi | get params.temp spec     of a JSON object these values alone
    $ localspec --help | grep ps     any other filter is one of the shell
    $ LOCALSPEC_TEMP=0 localspec run hi
    $ cat own/config/config.toml     any other command is one of the shell

`python -m tests.cli.dialogue NAME...` writes the answers into the files again. Times, sizes, ids and paths are masked.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cli.harness import PAIR, ROOT, environment, run, run_engine

FOLDER = Path(__file__).parent / "dialogues"
MARKS = "#>|$<~!="
MASKS = {
    r"\b\d+(\.\d+)? (tok/s|ms|s|MB|GB|MiB|GiB|kB)\b": r"# \2",
    r"\((?:(?:start|load|read|write) \d+\.\d+(?:, )?)+\)": "(<parts>)",
    r"\b0\.\d+\.\d+(-dev|\.dev\d+)?\b": "<version>",
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?Z?)?": "<time>",
}


@dataclass
class Section:
    """A dialogue: its first line, and what is typed in it with the lines that belong to each."""

    title: str
    typed: list[tuple[str, list[str]]] = field(default_factory=list)
    text: str = ""


def sections(text: str) -> list[Section]:
    found: list[Section] = []
    for line in text.splitlines():
        if line.startswith("# "):
            found.append(Section(line[2:]))
        elif line[:2] in ("> ", "$ ") or line.startswith("$$ "):
            found[-1].typed.append((line, []))
        elif line[:1] in ("|", "<"):
            found[-1].typed[-1][1].append(line)
        found[-1].text += f"{line}\n"
    return found


def answered(section: Section) -> str:
    with tempfile.TemporaryDirectory(prefix="dialogue-") as name:
        here = Path(name).resolve()
        (here / "own").mkdir()
        lines = [f"# {section.title}"]
        for typed, given in section.typed:
            lines += [typed, *given]
            text = "".join(f"{line[2:]}\n" for line in given)
            if typed.startswith(">"):
                (here / typed[2:]).parent.mkdir(parents=True, exist_ok=True)
                (here / typed[2:]).write_text(text, encoding="utf-8")
            else:
                lines += _answer(typed, text, here)
        return "\n".join(lines) + "\n\n"


def _answer(typed: str, given: str, here: Path) -> Iterator[str]:
    prompt, _, command = typed.partition(" ")
    env = {"LOCALSPEC_HOME": str(here / "own"), "HERE": str(here), "PAIR": str(PAIR), "COLUMNS": "80"}
    line, _, filtered = command.partition(" | ")
    words = [word.replace("$HERE", str(here)).replace("$PAIR", str(PAIR)) for word in shlex.split(line)]
    while words[0].partition("=")[0].isidentifier() and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        env[name] = value if name.startswith("FAKE_") else value.replace("\\n", "\n")
    if words[0] == "localspec":
        asked = run_engine if prompt == "$$" else run
        done = asked(*words[1:], stdin=given.encode(), env=env, cwd=here)
    else:
        done = subprocess.run(
            ["sh", "-c", command], input=given.encode(), capture_output=True, cwd=here, env=environment(env)
        )
    out = done.stdout.decode()
    if filtered and words[0] == "localspec":
        is_picked = filtered.startswith("get ")
        out = _picked(out, filtered.split()[1:]) if is_picked else _filtered(out, filtered)
    yield from (f"~ {each}" if each[:1] in MARKS and each else each for each in _masked(out, here))
    yield from (f"! {each}" for each in _masked(done.stderr.decode(), here))
    if done.returncode:
        yield f"= {done.returncode}"


def _filtered(out: str, command: str) -> str:
    return subprocess.run(["sh", "-c", command], input=out, capture_output=True, text=True, check=False).stdout


def _picked(out: str, paths: list[str]) -> str:
    """Return the values of an object at these paths, a line each; what is no object is shown as it is."""
    if not out.startswith("{"):
        return out
    values = []
    for path in paths:
        value: Any = json.loads(out)
        for key in path.split("."):
            if isinstance(value, list) and not key.isdigit():
                value = [each.get(key) for each in value]
            elif value is not None:
                value = value[int(key)] if isinstance(value, list) else value.get(key)
        values.append(f"{path}: {json.dumps(value, ensure_ascii=False)}\n")
    return "".join(values)


def _masked(text: str, here: Path) -> Iterator[str]:
    text = text.replace(str(here), "<here>").replace(str(PAIR), "<pair>").replace(str(ROOT), "<root>")
    for pattern, mask in MASKS.items():
        text = re.sub(pattern, mask, text)
    text = re.sub(r"\b(?=[a-z]*\d)[0-9a-hjkmnp-tv-z]{8}\b", "<id>", text)  # of a conversation
    return (line.rstrip() for line in text.splitlines())


def main() -> None:
    os.environ.setdefault("LOCALSPEC_HOME", tempfile.gettempdir())
    for name in sys.argv[1:] or sorted(each.stem for each in FOLDER.glob("*.txt")):
        file = FOLDER / f"{name}.txt"
        file.write_text("".join(map(answered, sections(file.read_text(encoding="utf-8")))), encoding="utf-8")


if __name__ == "__main__":
    main()
