"""The rules of the house, checked on the source: who may import whom, and how long things may get (ARCHITECTURE.md)."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

# The rooms from the bottom up. A module imports from its own room and from rooms above it in this list.
ROOMS = (
    "errors",
    "sanitize",
    "tuning",
    "settings",
    "engine",
    "verify",
    "trees",
    "methods",
    "control",
    "backends",
    "models",
    "speculation",
    "prompt",
    "testing",
    "ranking",
    "lossless",
    "heads",
    "remote",
    "session",
    "worker",
    "conversations",
    "ui",
    "chat",
    "bench",
    "server",
    "tui",
    "cli",
    "__main__",
)
# Rooms that know less than the order would let them: only these others, or not those. A name may be one module.
ONLY = {
    "engine": "errors settings tuning",
    "verify": "engine settings.declaration",
    "trees": "engine errors settings.declaration settings.sizes",
    "methods": "engine errors settings",
    "control": "engine errors settings.folders settings.sizes tuning",
    "backends": "engine errors settings.folders settings.request settings.sizes settings.stores tuning",
    "models": "control.chain control.profile errors sanitize settings.folders settings.request settings.sizes "
    "settings.stores tuning",
    "speculation": "control engine errors methods settings trees verify",
    "ranking": "engine errors settings",
    "remote": "engine errors sanitize settings verify",
    "heads": "backends engine errors models prompt sanitize settings",
    "conversations": "errors sanitize settings",
    "chat": "conversations engine.events errors models.ollama models.recent models.store sanitize settings ui",
}
FORBIDDEN = {
    "methods": "engine.loop engine.context",
    "ui": "backends session engine.loop",
    "tui": "backends session engine.loop",
    "server": "backends session engine.loop",
    "cli": "backends session engine.loop",
}
# Third-party packages and the only places that may import them.
OWNERS: dict[str, tuple[str, ...]] = {
    "llama_cpp": ("localspec.backends", "localspec.models.exit_files"),  # quantising is model tooling
    "click": ("localspec.cli",),
    "textual": ("localspec.tui",),
    "rich": ("localspec.cli", "localspec.tui"),
    "markdown_it": ("localspec.conversations.export",),
    "jinja2": ("localspec.prompt.template_sandbox",),
    "llguidance": ("localspec.prompt.form", "localspec.prompt.grammar"),
    "huggingface_hub": ("localspec.models.hub",),
    "filelock": ("localspec.models.hub",),
    "tomlkit": ("localspec.models.user_catalog", "localspec.settings.config_file"),
    "starlette": ("localspec.server",),
    "uvicorn": ("localspec.server.listening",),
    "h11": ("localspec.server.listening",),
    "websockets": ("localspec.remote.connection",),
    "msgspec": (
        "localspec.bench.result",
        "localspec.chat.conversation_files",
        "localspec.control.profile",
        "localspec.control.trial",
        "localspec.models.catalog",
        "localspec.models.ollama",
        "localspec.remote",
        "localspec.server",
        "localspec.session.trial",
        "localspec.settings",
        "localspec.worker.codec",
    ),
    "sqlite3": ("localspec.conversations",),
    "platformdirs": ("localspec.cli", "localspec.models", "localspec.settings.folders"),
    "numpy": ("localspec",),
    "torch": ("localspec.heads.network", "localspec.heads.training"),
    "gguf": ("localspec.heads.target_file",),
}
NEVER = ("scipy", "pytest", "hypothesis")
TALKERS = (
    "localspec.models.hub",
    "localspec.backends.rpc",
    "localspec.remote.connection",
    "localspec.server.listening",
)
NETWORK = ("socket", "http", "urllib", "ssl", "requests", "httpx")
CHANGING = ("add", "append", "clear", "discard", "extend", "pop", "popleft", "remove", "update")
MOST_CODE = 42_555
STRUCTS = ("params", "struct", "entry")  # names of structs of llama.cpp, which are filled field by field
# Where a field of what another module made is set all the same: state that a chat and its commands share, widgets and
# what else other packages made, errors that are told with more words.
SHARED = {
    "localspec.backends": "states",  # a batch's array
    "localspec.chat": "attached attachments deleted editing finish key listed loaded pair stats system text",
    "localspec.cli": "control ctx detail has_marks has_stats has_told_stop hint message on_error on_stop quiet remarks",
    "localspec.conversations": "content",
    "localspec.tui": "download editing has_begun is_cancelled is_told loaded refused text theme unseen value words",
}


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


@cache
def trees() -> dict[str, ast.Module]:
    """Return what is read of each module: once a run, and only by the process that runs these tests."""
    return {module: ast.parse(path.read_text(encoding="utf-8")) for module, path in SOURCES.items()}


@cache
def imports(module: str) -> tuple[str, ...]:
    """Return what a module imports anywhere, also inside functions: modules of ours, else the dotted name."""
    names = []
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [name if name in SOURCES else str(node.module) for name in full]
    return tuple(names)


def unit(module: str) -> str:
    """Return the name under localspec that a module belongs to; "" for the package itself."""
    return module.removeprefix("localspec").lstrip(".").partition(".")[0]


@cache
def ours() -> dict[str, list[str]]:
    """Return the modules of ours that each module imports."""
    return {
        module: sorted({name for name in imports(module) if name.startswith("localspec.")} - {module})
        for module in SOURCES
    }


def is_in(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def is_of(module: str, names: str) -> bool:
    """Whether a module belongs to one of these rooms, or is one of these modules."""
    return is_in(module, tuple(f"localspec.{name}" for name in names.split()))


def test_the_source_is_found() -> None:
    """The checks below look at the whole package, models included."""
    assert {"localspec.engine.loop", "localspec.cli", "localspec.models.gguf"} <= SOURCES.keys()
    assert "localspec.engine.protocols" in ours()["localspec.engine.loop"]
    assert {unit(module) for module in SOURCES} == {"", *ROOMS}


def test_every_folder_is_installed() -> None:
    """The wheel has every folder with modules: setuptools wants each one named."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    folders = {module for module, path in SOURCES.items() if path.name == "__init__.py"}
    assert folders <= {*project["tool"]["setuptools"]["packages"]}


def test_imports_go_down() -> None:
    """A module imports from its own room and those below it, and only what its room may know."""
    wrong = []
    for module, names in ours().items():
        here = unit(module)
        for name in names:
            there = unit(name)
            if here == there:
                continue
            is_below = here and ROOMS.index(there) < ROOMS.index(here)
            is_known = here not in ONLY or is_of(name, ONLY[here])
            if not (is_below and is_known) or is_of(name, FORBIDDEN.get(here, "")):
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_no_cycles() -> None:
    """The modules can be put in an order in which each imports earlier ones only."""
    try:
        order = list(TopologicalSorter(ours()).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert set(order) >= ours().keys()


def test_a_method_imports_no_other_method() -> None:
    """What two methods share is in a module with an underscore, so that each can be read, and removed, alone."""
    for module in SOURCES:
        if module.startswith("localspec.methods.") and not module.startswith("localspec.methods._"):
            others = [name for name in ours()[module] if name.startswith("localspec.methods.")]
            assert not [name for name in others if not name.startswith("localspec.methods._")], module


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
    """Nothing but fetching models, devices of other machines, the server and its client may talk to one.

    The sockets of warm engines are files of this machine.
    """
    for module in SOURCES:
        found = {name.partition(".")[0] for name in imports(module)} & {*NETWORK}
        if module == "localspec.worker.served":  # the client of --server
            assert found == {"socket", "ssl", "urllib"}, module
        elif is_in(module, ("localspec.worker", "localspec.server.background", "localspec.server.warm_engine")):
            assert found <= {"socket"}, module
            assert "AF_INET" not in SOURCES[module].read_text(encoding="utf-8"), module
        elif not is_in(module, TALKERS):
            assert not found, module


def test_options_are_judged_without_llama_cpp() -> None:
    """The command line can refuse, and the worker be started, before the library is loaded."""
    seen, todo = set(), ["localspec.speculation.resolve", "localspec.cli", "localspec.worker.client"]
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo += ours()[module]
    assert not [module for module in seen if any(name.partition(".")[0] == "llama_cpp" for name in imports(module))]


@cache
def calls() -> list[tuple[str, ast.Call]]:
    return [(module, node) for module, tree in trees().items() for node in ast.walk(tree) if isinstance(node, ast.Call)]


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement sets, deletes or changes: also by an item, and by a method of a list."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Attribute() as field, attr=name), args=[] | [_]) if name in CHANGING:
            todo: list[ast.expr] = [field]
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            todo = list(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            todo = [target]
        case ast.withitem(optional_vars=ast.expr() as target):
            todo = [target]
        case _:
            todo = []
    for one in todo:
        todo += (
            one.elts if isinstance(one, ast.Tuple | ast.List) else [one.value] if isinstance(one, ast.Starred) else []
        )
        todo += [one.value] if isinstance(one, ast.Subscript) else []
        if isinstance(one, ast.Attribute):
            yield one


def owner(field: ast.Attribute) -> str:
    """Return the last name of what a field belongs to: "backend" of `pair.backend.cancel`."""
    return ast.unparse(field.value).rpartition(".")[2]


def declared(tree: ast.Module) -> set[str]:
    """Return the fields of a module's classes: those of their bodies, and those that their methods set."""
    found = set()
    for kind in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for line in kind.body:
            targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
        found |= {one.attr for node in ast.walk(kind) for one in assigned(node) if owner(one) in ("self", "cls")}
    return found


def test_no_field_is_set_from_outside() -> None:
    """Backends, prices, drafters and all others are told by their constructor, by a call, or by a method of theirs."""
    own = {module: declared(tree) for module, tree in trees().items()}
    fields = set().union(*own.values())
    assert {"decode_rows", "reads_singly", "cancel", "growth", "waited"} <= fields
    wrong, used = [], {room: set[str]() for room in SHARED}
    for module, tree in trees().items():
        room = ".".join(module.split(".")[:2])
        inside = ("self", "cls", *(STRUCTS if room == "localspec.backends" else ()))
        for one in (field for node in ast.walk(tree) for field in assigned(node)):
            if one.attr in own[module] or one.attr not in fields or owner(one) in inside:
                continue
            if one.attr in SHARED.get(room, "").split():
                used[room].add(one.attr)
            else:
                wrong.append(f"{module}:{one.lineno} sets {ast.unparse(one)}")
    assert not wrong
    assert used == {room: set(names.split()) for room, names in SHARED.items()}, "what is mended leaves the list"
    by_name = {module for module, call in calls() if ast.unparse(call.func) in ("setattr", "object.__setattr__")}
    assert by_name == {"localspec.backends.batch", "localspec.engine.draft", "localspec.models.plan.machine"}


def test_nothing_prints_below_the_faces() -> None:
    """Below the command line nothing prints, reads the terminal or configures logging: it raises or returns."""
    below = [m for m in SOURCES if not is_in(m, ("localspec.cli", "localspec.tui", "localspec.__main__"))]
    assert not [m for m in below if "logging" in imports(m)]
    names = ("print", "input", "breakpoint")
    found = [(m, c.lineno) for m, c in calls() if isinstance(c.func, ast.Name) and c.func.id in names]
    assert not [place for place in found if place[0] in below]


def test_no_name_of_a_file_ends_a_chat() -> None:
    """Path.expanduser raises RuntimeError for "~nobody", Path.exists OSError for a name too long: see typed_path."""
    wrong = []
    for module, call in calls():
        raising = {"expanduser", "exists"} if is_in(module, ("localspec.cli", "localspec.tui")) else {"expanduser"}
        name = call.func
        if isinstance(name, ast.Attribute) and name.attr in raising and ast.unparse(name.value) != "os.path":
            wrong.append((module, call.lineno))
    assert not wrong


def test_marks_have_reasons() -> None:
    """A mark that silences a tool says why, behind a dash."""
    is_mark = re.compile(r"# (noqa|type: ignore)")
    has_reason = re.compile(r"# (noqa: [^#]+|type: ignore\[.+\] ) ?[-#] \w")
    lines = [line for path in SOURCES.values() for line in path.read_text(encoding="utf-8").splitlines()]
    assert not [line for line in lines if is_mark.search(line) and not has_reason.search(line)]


def test_modules_say_what_they_are_for() -> None:
    """Every module with more than one statement begins with a docstring."""
    assert not [m for m, tree in trees().items() if len(tree.body) > 1 and not ast.get_docstring(tree)]


def code_lines(module: str) -> int:
    """Count the lines of a module that are neither blank nor comment, docstring or import."""
    others = set()
    for node in ast.walk(trees()[module]):
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_docstring or isinstance(node, ast.Import | ast.ImportFrom):
            others |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = enumerate(SOURCES[module].read_text(encoding="utf-8").splitlines(), 1)
    return sum(number not in others and line.lstrip()[:1] not in ("", "#") for number, line in lines)


def test_the_product_does_not_grow() -> None:
    """A ratchet: it goes down with the code. The aim is 36 500."""
    assert sum(map(code_lines, SOURCES)) <= MOST_CODE


def test_a_module_has_one_subject() -> None:
    """No docstring lists further subjects of its module."""
    assert not [module for module, tree in trees().items() if "Also here" in (ast.get_docstring(tree) or "")]


def test_no_module_imports_itself() -> None:
    assert not [module for module in SOURCES if module in imports(module)]


def test_no_function_rewrites_a_message() -> None:
    """A message is written once, where the error is made: nothing replaces words in it, or in its hint."""
    changing = {"replace", "sub", "removeprefix", "removesuffix", "lstrip", "translate"}
    wrong = []
    for module, call in calls():
        if isinstance(call.func, ast.Attribute) and call.func.attr in changing:
            read = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
            wrong += [f"{module}:{call.lineno}"] * bool(read & {"message", "hint"})
    assert not wrong
