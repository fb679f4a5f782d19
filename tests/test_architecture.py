"""The rules of the house, checked on the source: who may import whom, and how long things may get (ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

# From the bottom up. A module imports from its own layer and those below; one that is not named here lies as low as
# what it imports lets it.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(names.split())
    for names in (
        "errors law text sanitize progress tuning",  # depend on nothing
        "draft config configuration events options chooser setting",  # data and randomness
        "acceptance protocols stats enumeration",  # the seams
        "context sampling verify trees control",  # one concern each, behind a seam
        "engine methods backends models",
        "axes narration chat_template template_sandbox prompt testing",
        "session",  # puts the parts together
        "worker worker_main worker_process",
        "faces",  # what every face reads, says and asks alike
        "cli tui server bench __main__",
    )
)
# Units that know less than their layer would let them: only these others, or not those.
ONLY: dict[str, str] = {
    "engine": "context draft protocols sampling",
    "verify": "draft law options protocols",
    "trees": "acceptance draft errors law options protocols",
    "control": "acceptance draft errors law options protocols tuning",
    "backends": "config draft errors law protocols",  # config: where what was found out of the machine is kept
    "models": "config errors",
    "conversations": "attachment config errors sanitize",
}
FORBIDDEN = {
    "methods": "backends engine models control context trees verify",
    "cli": "backends engine session",
    "faces": "backends engine session",
    "tui": "backends engine session cli",
}
# Third-party packages and the only places that may import them.
OWNERS: dict[str, tuple[str, ...]] = {
    "llama_cpp": ("localspec.backends", "localspec.models.early_exit"),  # quantising is model tooling
    "click": ("localspec.cli",),
    "textual": ("localspec.tui",),
    "rich": ("localspec.cli", "localspec.tui"),
    "jinja2": ("localspec.chat_template", "localspec.template_sandbox"),
    "huggingface_hub": ("localspec.models.hub",),
    "filelock": ("localspec.models.hub",),
    "tomlkit": ("localspec.models.user_catalog", "localspec.configuration"),
    "sqlite3": ("localspec.conversations",),
    "platformdirs": ("localspec.cli", "localspec.models", "localspec.config"),
    "numpy": ("localspec",),
}
NEVER = ("torch", "scipy", "pytest", "hypothesis")
NETWORK = ("socket", "http", "urllib", "ssl", "requests", "httpx")
LONGEST_FUNCTION = 60
LONGEST_FILE = 350


def sources() -> dict[str, Path]:
    """Return every module of the installed package with its file."""
    found = {}
    for package in ("localspec", "localspec.models", "localspec.tui"):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(folder).rglob("*.py")):
                parts = (package, *path.relative_to(folder).with_suffix("").parts)
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = sources()
TREES = {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in SOURCES.items()}


def imports(module: str) -> Iterator[str]:
    """Yield what a module imports anywhere, also inside functions: modules of ours, else the dotted name."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in SOURCES else str(node.module)


def unit(module: str) -> str:
    """Return the name under localspec that a module belongs to; "" for the package itself."""
    return module.removeprefix("localspec").lstrip(".").partition(".")[0]


OURS = {
    module: sorted({name for name in imports(module) if name.startswith("localspec.")} - {module}) for module in SOURCES
}


@cache
def layer(name: str) -> int:
    """Return the layer of a unit."""
    for rank, names in enumerate(LAYERS):
        if name in names:
            return rank
    below = {unit(other) for module in SOURCES if unit(module) == name for other in OURS[module]} - {name}
    return max(map(layer, below), default=0)


def is_in(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def test_the_source_is_found() -> None:
    """The checks below look at the whole package, models included."""
    assert {"localspec.engine", "localspec.cli", "localspec.models.gguf", "localspec.verify.block"} <= SOURCES.keys()
    assert "localspec.protocols" in OURS["localspec.engine"]


@pytest.mark.parametrize("module", OURS)
def test_imports_go_down(module: str) -> None:
    """A module imports from its own layer and those below it, and only what its unit may know."""
    if not unit(module):
        assert not OURS[module], "the package itself imports nothing"
        return
    for name in OURS[module]:
        here, there = unit(module), unit(name)
        if here != there:
            assert layer(there) <= layer(here), f"{name} lies above it"
            assert here not in ONLY or there in ONLY[here].split(), f"it may not know {name}"
            assert there not in FORBIDDEN.get(here, "").split(), f"it may not know {name}"


def test_no_cycles() -> None:
    """The modules can be put in an order in which each imports earlier ones only."""
    try:
        order = list(TopologicalSorter(OURS).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert set(order) >= OURS.keys()


def test_a_method_imports_no_other_method() -> None:
    """What two methods share lives beside the package, so that each can be read, and removed, alone."""
    for module in SOURCES:
        if module.startswith("localspec.methods."):
            assert not [name for name in OURS[module] if name.startswith("localspec.methods.")], module


@pytest.mark.parametrize("package", OWNERS)
def test_third_party_packages_have_one_owner(package: str) -> None:
    """llama.cpp is behind the backends, the command line's library in the command line, and so on."""
    for module in SOURCES:
        if any(name.partition(".")[0] == package for name in imports(module)):
            assert is_in(module, OWNERS[package]), f"{module} may not import {package}"


def test_development_tools_stay_outside() -> None:
    """What only tests and training need is not needed to run."""
    for module in SOURCES:
        assert not [name for name in imports(module) if name.partition(".")[0] in NEVER], module


def test_the_network_is_for_downloads_only() -> None:
    """Nothing but fetching models and devices of other machines may talk to one."""
    for module in SOURCES:
        if not is_in(module, ("localspec.models.hub", "localspec.server", "localspec.backends.rpc")):
            assert not [name for name in imports(module) if name.partition(".")[0] in NETWORK], module


def test_options_are_judged_without_llama_cpp() -> None:
    """The command line can refuse, and the worker be started, before the library is loaded."""
    seen, todo = set(), ["localspec.axes", "localspec.cli", "localspec.worker"]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += OURS[module]
    assert not [module for module in seen if module.startswith("localspec.backends")]


@pytest.mark.parametrize("module", SOURCES)
def test_nothing_prints_below_the_faces(module: str) -> None:
    """Below the command line nothing prints, reads the terminal or configures logging: it raises or returns."""
    if is_in(module, ("localspec.cli", "localspec.tui", "localspec.__main__")):
        return
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("print", "input", "breakpoint"), f"{module}:{node.lineno}"
    assert "logging" not in imports(module)


@pytest.mark.parametrize("module", SOURCES)
def test_no_name_of_a_file_ends_a_chat(module: str) -> None:
    """Path.expanduser raises RuntimeError for "~nobody", Path.exists OSError for a name too long: see typed_path."""
    raising = {"expanduser", "exists"} if is_in(module, ("localspec.cli", "localspec.tui")) else {"expanduser"}
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in raising:
            assert ast.unparse(node.func.value) == "os.path", f"{module}:{node.lineno}"


@pytest.mark.parametrize("module", SOURCES)
def test_files_and_functions_stay_short(module: str) -> None:
    """A guard, not a target: the aim is 300 lines a file and 40 a function."""
    lines = SOURCES[module].read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_FILE
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < LONGEST_FUNCTION, f"{node.name} at line {node.lineno}"


@pytest.mark.parametrize("module", SOURCES)
def test_modules_say_what_they_are_for(module: str) -> None:
    """Every module with more than one statement begins with a docstring."""
    assert len(TREES[module].body) <= 1 or ast.get_docstring(TREES[module])
