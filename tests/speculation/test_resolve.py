"""The four axes: what `auto` decides, which combinations are legal, and that every refusal names a legal one."""

import math
import re
import shlex
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path

import pytest

from localspec.errors import IncompatibleError, UsageError
from localspec.settings.request import Speculation
from localspec.speculation import PACKAGES, _classes, _named, _plugins, registered
from localspec.speculation.resolve import Axes, resolve_axes
from localspec.trees.budget import MAX_LEAVES, MAX_NODES
from tests.recorded import recorded_expressions

OPTIONS = {"--method": "method", "--tree": "tree", "--length": "length", "--verify": "verify", "-k": "k"}


def axes(*, has_draft: bool = True, is_seeded: bool = False, draft_kind: str = "", **spoken: str | int) -> Axes:
    return resolve_axes(Speculation(**spoken), has_draft=has_draft, is_seeded=is_seeded, draft_kind=draft_kind)


def told(found: Axes) -> str:
    shape, rule = found.shape, found.verifier
    size = f"{shape.nodes} nodes, {shape.depth} deep, {shape.leaves} leaves as {type(found.policy).__name__}"
    own = {name: value for name, value in getattr(rule, "__dict__", {}).items() if isinstance(value, float)}
    axes = f"{found.method}, {found.tree}, {found.length}, {found.verify} {own or ''}"
    return " | ".join((axes, size, found.draw.name, *(each for each in KEPT if getattr(found, each))))


KEPT = ("is_guarded", "is_automatic")


@pytest.mark.parametrize("is_greedy", [False, True])
@pytest.mark.parametrize("is_seeded", [False, True])
@pytest.mark.parametrize("has_draft", [False, True])
def test_the_defaults_are_never_refused(has_draft: bool, is_seeded: bool, is_greedy: bool) -> None:
    """So the command line need not ask."""
    found = resolve_axes(Speculation(), has_draft=has_draft, is_seeded=is_seeded, is_greedy=is_greedy)
    assert found.is_guarded or is_seeded


METHOD_NAMES = ["auto", "plain", "draft-model", "draft-modle", "eagle3"]
TREE_NAMES = ["chain", "static:2,1", "static:1", "chain:3", "static", "static:0", "static:x", "static:9,9", "chian"]
RULES = ["token", "block", "tree", "traversal", "coupled", "match"]
VERIFY_NAMES = ["auto", *RULES, "blok"]
LENGTH_NAMES = ["auto", "fixed", "fixd"]


def legal(speculation: Speculation, *, has_draft: bool) -> bool:
    """Say what the table in one's head says: names exist, drafts have a drafter, trees a rule, -k something to size."""
    widths = [int(width) for width in re.findall(r"\d+", speculation.tree)]
    well_formed = speculation.tree == "chain" or (
        re.fullmatch(r"static:[1-9](,[1-9])*", speculation.tree) and math.prod(widths) <= MAX_LEAVES
    )
    is_tree = math.prod(widths) > 1
    method = speculation.method
    if method == "auto":
        method = "draft-model" if has_draft else "plain"
    drafts = method in ("draft-model", "eagle3") and speculation.k != 0
    return (
        method in ("plain", "draft-model", "eagle3")
        and speculation.verify in ("auto", *RULES)
        and speculation.length in ("auto", "fixed")
        and bool(well_formed)
        and (method == "plain" or has_draft)
        and (drafts or speculation.tree == "chain")
        and not (method == "plain" and speculation.k)
        and not (speculation.tree != "chain" and speculation.k)
        and not (is_tree and speculation.verify in ("token", "block"))
    )


def follow(hint: str, speculation: Speculation, has_draft: bool) -> tuple[Speculation, bool]:
    """Apply a hint as a person would: put its options in the place of their own."""
    words = shlex.split(hint)
    assert len(words) % 2 == 0, f"{hint!r} is not a list of options with values"
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option == "--draft":
            has_draft = True
        else:
            name = OPTIONS[option]
            speculation = replace(speculation, **{name: int(value) if name == "k" else value})
    return speculation, has_draft


@pytest.mark.parametrize("has_draft", [True, False], ids=["pair", "target only"])
@pytest.mark.parametrize("is_seeded", [True, False], ids=["seeded", "unseeded"])
def test_every_combination(has_draft: bool, is_seeded: bool) -> None:
    """Legal ones resolve to something a session can build; illegal ones lead, hint by hint, to a legal one."""
    refused = 0
    for method, tree, verify, length, k in product(METHOD_NAMES, TREE_NAMES, VERIFY_NAMES, LENGTH_NAMES, (None, 0, 3)):
        speculation = Speculation(method=method, tree=tree, length=length, k=k, verify=verify)
        draft = has_draft
        for _ in range(9):
            if legal(speculation, has_draft=draft):
                break
            with pytest.raises(UsageError) as caught:
                resolve_axes(speculation, has_draft=draft, is_seeded=is_seeded)
            assert caught.value.exit_code == 2
            speculation, draft = follow(caught.value.hint, speculation, draft)
            refused += 1
        else:
            pytest.fail(f"the hints lead nowhere: {speculation}")
        found = resolve_axes(speculation, has_draft=draft, is_seeded=is_seeded)
        rule = registered("verify")[found.verify]
        assert found.draw in rule.accepts
        assert rule.trees or found.shape.leaves == 1
        assert found.shape.leaves <= MAX_LEAVES
    assert refused > 100


def test_the_modules_of_an_axis_register_themselves() -> None:
    """Each file of a method or a verifier has a class of that name, and that of draft models those of heads.

    Helpers and base classes have no name.
    """
    heads = {"method": {"dflash", "eagle1", "eagle3", "medusa", "mtp"}, "verify": set()}
    expected = {axis: set(registered(axis)) for axis in PACKAGES}
    for axis in ("method", "verify"):
        folder = Path(str(import_module(PACKAGES[axis]).__file__)).parent
        files = {path.stem.replace("_", "-") for path in folder.glob("[!_]*.py")}
        assert files | heads[axis] == expected[axis]
    assert expected["length"] == {"fixed", "confidence", "adaptive"}
    assert {"chain", "static", "dyspec", "eagle2"} < expected["tree"]
    for axis in PACKAGES:
        assert list(registered(axis)) == sorted(expected[axis])
        for name, cls in registered(axis).items():
            assert name == (cls.info.name if axis == "method" else cls.name)
    assert all(cls.info.summary for cls in registered("method").values())
    assert all(isinstance(cls.accepts, frozenset) for cls in registered("verify").values())


def test_no_two_classes_of_an_axis_share_a_name() -> None:
    """The later one would replace the earlier one without a word."""
    for axis, package in PACKAGES.items():
        names = [name for name, _ in _named(_classes(package))]
        assert sorted(names) == sorted(set(names)), axis


def test_a_module_that_does_not_import_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    package = import_module("localspec.verify")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        dict(_named(_classes("localspec.verify")))


def test_a_plug_in_is_registered_or_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry-point group of methods: the class under its name, and one line for a package that is broken."""
    good = EntryPoint("theirs", "localspec.methods.suffix:Suffix", "localspec.methods")
    bad = EntryPoint("theirs", "nothing_of_this_name:Suffix", "localspec.methods")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [good])
    assert _plugins("method") == {"theirs": registered("method")["suffix"]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [bad])
    with pytest.raises(IncompatibleError, match="'theirs' of the package nothing_of_this_name:Suffix cannot be loaded"):
        _plugins("method")


@pytest.mark.parametrize(
    ("axis", "group", "builtin"),
    [
        ("tree", "localspec.trees", "dyspec"),
        ("length", "localspec.lengths", "confidence"),
        ("verify", "localspec.verifiers", "block"),
    ],
)
def test_trees_and_rules_may_come_from_another_package(
    monkeypatch: pytest.MonkeyPatch, axis: str, group: str, builtin: str
) -> None:
    ours = dict(registered(axis))
    cls = ours[builtin]
    theirs = EntryPoint("theirs", f"{cls.__module__}:{cls.__name__}", group)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [theirs] if group == theirs.group else [])
    registered.cache_clear()
    try:
        assert registered(axis)["theirs"] is cls
        assert {name: each for name, each in registered(axis).items() if name != "theirs"} == ours
    finally:
        registered.cache_clear()


def test_which_rules_take_trees() -> None:
    """Each rule that is registered, by what it says to a tree."""
    for name, rule in registered("verify").items():
        asked = Speculation(tree="static:2,1", verify=name, approximate=not rule.is_lossless)
        if name in ("block", "token"):
            with pytest.raises(UsageError, match=f"--verify {name} takes chains only, not trees"):
                resolve_axes(asked, has_draft=True, is_seeded=False)
        else:
            assert resolve_axes(asked, has_draft=True, is_seeded=False).verify == name


test_what_is_recorded = recorded_expressions(__file__, axes, shown=told, MAX_LEAVES=MAX_LEAVES, MAX_NODES=MAX_NODES)
