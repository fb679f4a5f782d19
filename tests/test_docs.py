"""The written pages: sentences and paragraphs stay short, and every link and path in them leads somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import localspec, needs_pair
from tests.test_architecture import ROOMS

ROOT = Path(__file__).parents[1]
GENERATED = {"cli.md", "json.md", "methods.md", "glossary.md"}
WRITTEN = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED),
]
PAGES = sorted((ROOT / "localspec" / "ui" / "pages").rglob("*.md"))
EVERY = [*WRITTEN, *(ROOT / "docs" / name for name in sorted(GENERATED)), ROOT / "CHANGELOG.md"]
LONGEST_SENTENCE = 25  # words
LONGEST_PARAGRAPH = 90  # words
LONGEST_ARCHITECTURE = 220  # lines
PLACES = {path.name for path in (*ROOT.iterdir(), *(ROOT / "localspec").iterdir())}
_WORD = re.compile(r"\w")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def paragraphs(text: str) -> Iterator[str]:
    """Yield the prose of a page: no code, formulas, tables, headings or pictures; an item of a list is a paragraph."""
    text = re.sub(r"^## Formula\n.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: *\||#|!\[).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "code", text)
    for block in re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text):
        if block.strip():
            yield " ".join(block.split())


def words(text: str) -> int:
    return sum(_WORD.search(word) is not None for word in text.split())


def sentences(paragraph: str) -> list[str]:
    end, begin = r"(?:(?<=[.!?])|(?<=[.!?][*)\"])|(?<=[.!?]\*\*))", r"(?=[*\"(]*[A-Z\d]|(?:code|localspec)\b)"
    return re.split(rf"{end}\s+{begin}", paragraph)


def test_sentences_are_told_apart() -> None:
    """What the check below rests on."""
    text = "One, e.g. this. Two `a b. C`\nis a sentence: yes.\n\n- Three.\n- Four **bold.** Five.\n\n| a. | B. |\n"
    assert [sentences(each) for each in paragraphs(text)] == [
        ["One, e.g. this.", "Two code is a sentence: yes."],
        ["- Three."],
        ["- Four **bold.**", "Five."],
    ]


@pytest.mark.parametrize("path", [*WRITTEN, *PAGES], ids=name)
def test_sentences_and_paragraphs_are_short(path: Path) -> None:
    long = []
    for paragraph in paragraphs(path.read_text(encoding="utf-8")):
        long += [(words(each), each) for each in sentences(paragraph) if words(each) > LONGEST_SENTENCE]
        if words(paragraph) > LONGEST_PARAGRAPH:
            long.append((words(paragraph), paragraph))
    assert not long


def test_the_architecture_is_read_in_one_sitting() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()) <= LONGEST_ARCHITECTURE


def test_the_architecture_names_every_room() -> None:
    """The tree at its beginning has the rooms in the order in which they may import each other."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = re.search(r"```text\n(errors .*?)```", text, flags=re.DOTALL)
    assert tree is not None
    named = [line.split()[0] for line in tree[1].splitlines()]
    assert [room for room in named if room in ROOMS] == [room for room in ROOMS if room != "__main__"]


def anchors(path: Path) -> set[str]:
    """Return the places in a page that a link can name, as GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_paths_in_backticks_are_there(path: Path) -> None:
    """A path that begins with a folder of the repository exists; so does a lone name of a Python file or a page.

    A file of an example, which stands alone above its code, is to be written by the reader.
    """
    missing = []
    text = re.sub(
        r"^`[^`]+`[.:].*\n\n```(?:python|markdown)", "", path.read_text(encoding="utf-8"), flags=re.M
    )  # files of an example
    for code in re.findall(r"`([^`\n]+)`", text):
        found = re.fullmatch(r"(?:\./)?([\w.-]+(?:/[\w.-]+)*)(/?)(?: .*)?", code)
        if found is None:
            continue
        first, rest = found[1].partition("/")[::2]
        is_path = first in PLACES if rest or found[2] else found[1].endswith((".py", ".md")) and " " not in code
        if is_path and not any((base / found[1]).exists() for base in (ROOT, ROOT / "localspec")):
            missing.append(code)
    assert not missing


@needs_pair
def test_the_example_of_the_readme_is_true() -> None:
    """The command prints the text below it; plain decoding and auto with its seed write the same story.

    The seed was chosen for that: none of its tokens is decided by less than 0.1 logits, beyond what rounding moves.
    Where the marks stand depends on when plain passes were timed, which a busy machine moves.
    """
    marks = "[⟦⟧⁺]"
    found = re.search(r"^\$ localspec (run --seed .*)\n(.*\n)```", (ROOT / "README.md").read_text("utf-8"), re.M)
    assert found is not None
    args = shlex.split(found[1])
    shown, story = localspec(*args).stdout.decode(), re.sub(marks, "", found[2])
    assert re.findall(marks, shown)
    assert re.sub(marks, "", shown) == story
    args.remove("--tokens")
    for method in ("plain", "auto"):
        assert localspec(*args, "--method", method).stdout.decode() == story, method


def test_the_source_names_files_that_are_there() -> None:
    """Docstrings and comments name a test, a script, a page or a module by a path that exists."""
    named = re.compile(r"(?<![\w/.])((?:tests|scripts|docs|localspec|models|tui)/[\w./-]+\.(?:py|md))\b")
    files = [path for folder in ("localspec", "models", "tui", "scripts") for path in ROOT.glob(f"{folder}/**/*.py")]
    found = {(name(path), each) for path in files for each in named.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 10
    assert not [(file, each) for file, each in found if not (ROOT / each).exists()]


def is_there(parts: list[str]) -> bool:
    """Whether a dotted name is a module, or a name in one; `parts` begins with a room."""
    for n in range(len(parts), 0, -1):
        for base in (ROOT / "localspec", ROOT):
            module, package = base.joinpath(*parts[:n]).with_suffix(".py"), base.joinpath(*parts[:n], "__init__.py")
            if (file := module if module.is_file() else package).is_file():
                return n == len(parts) or re.search(rf"\b{parts[n]}\b", file.read_text(encoding="utf-8")) is not None
    return False


def test_the_source_names_modules_that_are_there() -> None:
    """A name in backticks that begins with a room, as `engine.text.Marks`, is that of a module or of what one holds."""
    files = [path for folder in ("localspec", "models", "tui", "tests") for path in ROOT.glob(f"{folder}/**/*.py")]
    named = re.compile(rf"`(?:localspec\.)?((?:{'|'.join(ROOMS)})(?:\.\w+)+)(?:\(\))?`")
    found = {(name(path), each) for path in files for each in named.findall(path.read_text(encoding="utf-8"))}
    assert len(found) > 10
    assert not [(file, each) for file, each in found if not is_there(each.split("."))]


def test_nothing_cites_what_is_not_here() -> None:
    """Codes of documents outside the repository cannot be looked up."""
    files = (
        path
        for folder in ("localspec", "models", "tui", "scripts", "tests", "docs")
        for path in ROOT.glob(f"{folder}/**/*.*")
    )
    text = {path: path.read_text(encoding="utf-8") for path in files if path.suffix in (".py", ".md")}
    assert not [name(path) for path, each in text.items() if re.search(r"\b(?:ALG|UX)\s+[M\d]", each)]


def test_every_row_of_llama_cpp_names_a_test_that_is_there() -> None:
    """docs/llama.md: what the engine relies on is pinned."""
    rows = re.findall(r"^\| (?!what |---).*$", (ROOT / "docs" / "llama.md").read_text("utf-8"), re.M)
    assert len(rows) > 20
    for row in rows:
        named = re.search(r"\| `(tests/[\w/]+\.py)::(test_\w+)` \|$", row)
        assert named is not None, row
        assert f"\ndef {named[2]}(" in (ROOT / named[1]).read_text("utf-8"), row


def test_safety_of_the_server_names_its_own_encryption() -> None:
    assert "`--ssl-certfile`" in (ROOT / "docs" / "server.md").read_text().partition("## Safety")[2]
