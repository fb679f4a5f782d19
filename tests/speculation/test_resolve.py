"""The four axes: what `auto` decides, which combinations are legal, and that every refusal names a legal one."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint
from itertools import product
from pathlib import Path

import pytest

from localspec.engine.draft import Draw
from localspec.errors import IncompatibleError, UsageError
from localspec.settings.request import Speculation
from localspec.speculation import PACKAGES, _classes, _named, _plugins, registered
from localspec.speculation.resolve import MAX_AUTO_CHAIN, Axes, resolve_axes
from localspec.trees.budget import MAX_LEAVES, MAX_NODES, TREE_NODES
from localspec.trees.static import Chain, Static

OPTIONS = {"--method": "method", "--tree": "tree", "--length": "length", "--verify": "verify", "-k": "k"}


def axes(*, has_draft: bool = True, is_seeded: bool = False, draft_kind: str = "", **spoken: str | int) -> Axes:
    return resolve_axes(Speculation(**spoken), has_draft=has_draft, is_seeded=is_seeded, draft_kind=draft_kind)


@pytest.mark.parametrize("is_greedy", [False, True])
@pytest.mark.parametrize("is_seeded", [False, True])
@pytest.mark.parametrize("has_draft", [False, True])
def test_the_defaults_are_never_refused(has_draft: bool, is_seeded: bool, is_greedy: bool) -> None:
    """So the command line need not ask."""
    found = resolve_axes(Speculation(), has_draft=has_draft, is_seeded=is_seeded, is_greedy=is_greedy)
    assert found.is_guarded or is_seeded


def test_the_defaults() -> None:
    """A pair drafts chains with block rejection, as long as the controller likes; without a draft model, plainly."""
    found = axes()
    assert (found.method, found.tree, found.length, found.verify) == ("draft-model", "chain", "auto", "block")
    assert (found.shape.nodes, found.shape.depth, found.shape.leaves) == (MAX_AUTO_CHAIN, MAX_AUTO_CHAIN, 1)
    assert found.draw is Draw.IID
    assert isinstance(found.policy, Chain)
    plain = axes(has_draft=False)
    assert (plain.method, plain.shape.nodes) == ("plain", 0)


@pytest.mark.parametrize(
    ("spoken", "is_seeded", "verify", "draw"),
    [
        ({}, False, "block", Draw.IID),
        ({}, True, "coupled", Draw.COUPLED),
        ({"tree": "static:2,1"}, False, "traversal", Draw.WITHOUT_REPLACEMENT),
        ({"tree": "eagle2:8"}, False, "coupled", Draw.COUPLED),
        ({"method": "suffix"}, False, "coupled", Draw.COUPLED),
        ({"tree": "static:2,1"}, True, "coupled", Draw.COUPLED),
        ({"verify": "token"}, True, "token", Draw.IID),
        ({"verify": "tree"}, False, "tree", Draw.IID),
        ({"verify": "tree", "tree": "static:2,1"}, False, "tree", Draw.WITHOUT_REPLACEMENT),
        ({"verify": "traversal", "tree": "static:2,1"}, False, "traversal", Draw.WITHOUT_REPLACEMENT),
        ({"verify": "match"}, False, "match", Draw.FIXED),
        ({"verify": "match", "tree": "static:2,1"}, False, "match", Draw.FIXED),
        ({"verify": "coupled"}, False, "coupled", Draw.COUPLED),
    ],
)
def test_rules_and_how_their_drafts_are_drawn(spoken: dict, is_seeded: bool, verify: str, draw: Draw) -> None:
    """`auto` promises the text where a seed was given or nothing is drawn; every rule gets its best draws."""
    found = axes(is_seeded=is_seeded, **spoken)
    assert (found.verify, found.draw) == (verify, draw)
    assert found.draw in registered("verify")[verify].accepts


@pytest.mark.parametrize("k", [0, 1, 7])
def test_the_draft_length_is_k(k: int) -> None:
    """Also zero, which is plain decoding by that method."""
    assert axes(k=k).shape.nodes == k


def test_a_length_without_a_draft_model_names_what_drafts_without_one() -> None:
    """Plain decoding was not asked for, so the error does not speak of it."""
    with pytest.raises(UsageError, match="without a draft model; --method suffix needs none"):
        axes(has_draft=False, k=3)
    assert axes(has_draft=False, method="suffix", k=3).shape.nodes == 3


def test_a_trees_shape_is_its_own() -> None:
    """Widths decide nodes, depth and leaves; one child a level is a chain and verified as one."""
    found = axes(tree="static:3,2,1")
    assert (found.shape.nodes, found.shape.depth, found.shape.leaves) == (15, 3, 6)
    assert isinstance(found.policy, Static)
    assert axes(tree="static:1,1").verify == "block"


def test_only_auto_may_be_parked() -> None:
    """A method that was asked for by name is used even where it does not pay."""
    assert axes().is_guarded
    assert not axes(method="draft-model").is_guarded


@pytest.mark.parametrize(
    ("spoken", "is_seeded", "length", "nodes"),
    [
        ({}, True, "auto", MAX_AUTO_CHAIN),
        ({"k": 3}, False, "auto", 3),
        ({"k": 40}, False, "auto", 40),
        ({"length": "fixed"}, False, "fixed", 4),
        ({"length": "adaptive"}, False, "adaptive", 4),
        ({"tree": "dyspec"}, False, "fixed", TREE_NODES),
        ({"method": "draft-model"}, False, "fixed", 4),
        ({"verify": "token"}, True, "fixed", 4),
    ],
)
def test_who_decides_the_length(spoken: dict, is_seeded: bool, length: str, nodes: int) -> None:
    """The controller, where the method was left to it, within -k; but never a text that was promised by a seed."""
    found = axes(is_seeded=is_seeded, **spoken)
    assert (found.length, found.shape.nodes) == (length, nodes)
    assert found.is_automatic == (length == "auto")


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


@pytest.mark.parametrize(
    ("spoken", "hint"),
    [
        ({"method": "draft_model"}, "--method draft-model"),
        ({"method": "plian"}, "--method plain"),
        ({"tree": "statik:2,1"}, "--tree static"),
        ({"verify": "blocks"}, "--verify block"),
        ({"verify": "traverse"}, "--verify traversal"),
        ({"verify": "coupling"}, "--verify coupled"),
        ({"length": "fix"}, "--length fixed"),
    ],
)
def test_did_you_mean(spoken: dict, hint: str) -> None:
    """A name that almost exists is answered with the one that does, and the list of all."""
    with pytest.raises(UsageError) as caught:
        axes(**spoken)
    assert caught.value.hint == hint
    option, name = hint.split()
    assert option in caught.value.message
    assert name in caught.value.message


def test_a_method_without_its_model() -> None:
    """The message says what is missing, the hint how to give it."""
    with pytest.raises(UsageError, match="needs a draft model") as caught:
        axes(method="draft-model", has_draft=False)
    assert caught.value.hint.startswith("--draft")


@pytest.mark.parametrize(
    ("kind", "asked", "found"),
    [
        ("model", "auto", "draft-model"),
        ("eagle3", "auto", "eagle3"),
        ("mtp", "auto", "mtp"),
        ("eagle3", "draft-model", "eagle3"),
        ("mtp", "mtp", "mtp"),
        ("", "eagle3", "eagle3"),
        ("mtp", "suffix", "suffix"),
    ],
)
def test_the_draft_drafts_by_the_method_of_its_kind(kind: str, asked: str, found: str) -> None:
    """Before its file is read the kind is not known, and any is taken for the right one."""
    assert axes(method=asked, draft_kind=kind).method == found


@pytest.mark.parametrize(
    ("kind", "asked", "needs", "has"),
    [("model", "mtp", "an MTP head", "a draft model"), ("mtp", "eagle3", "an EAGLE-3 head", "an MTP head")],
)
def test_a_head_of_another_kind_is_refused(kind: str, asked: str, needs: str, has: str) -> None:
    with pytest.raises(UsageError, match=f"--method {asked} needs {needs}, and the pair has {has}") as caught:
        axes(method=asked, draft_kind=kind)
    assert caught.value.hint == f"--method {'draft-model' if kind == 'model' else kind}"


def test_too_many_leaves() -> None:
    """A tree that needs more sequences than a context is given is refused with the numbers."""
    with pytest.raises(UsageError, match=f"81 leaves, and the most is {MAX_LEAVES}"):
        axes(tree="static:9,9")
    assert axes(tree=f"static:{MAX_LEAVES}").shape.leaves == MAX_LEAVES


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


@pytest.mark.parametrize(
    ("verify", "parameters"),
    [
        ("typical", {"_epsilon": 0.09, "_delta": 0.3}),
        ("typical:epsilon=0.3,delta=0.05", {"_epsilon": 0.3, "_delta": 0.05}),
        ("typical:delta=0", {"_epsilon": 0.09, "_delta": 0.0}),
        ("spectr", {"_rho": 1.0}),
        ("spectr:rho=2", {"_rho": 2.0}),
        ("spectr:", {"_rho": 1.0}),
    ],
)
def test_parameters_of_rules(verify: str, parameters: dict[str, float]) -> None:
    """They follow a colon, as those of trees do; what is left out has its default."""
    found = axes(verify=verify, approximate=True)
    assert found.verify == verify.rstrip(":")
    assert {name: getattr(found.verifier, name) for name in parameters} == parameters


@pytest.mark.parametrize(
    ("verify", "words", "hint"),
    [
        ("typical:epsilon=2", ["--verify typical:epsilon=2", "from 0 to 1"], "--verify typical:epsilon=0.09"),
        ("typical:epsilon=nan", ["from 0 to 1"], "--verify typical:epsilon=0.09"),
        ("typical:eps=0.1", ["'eps'", "epsilon, delta"], "--verify typical:epsilon=0.09"),
        ("typical:0.1", ["'0.1'", "epsilon, delta"], "--verify typical:epsilon=0.09"),
        ("spectr:rho=0.5", ["from 1"], "--verify spectr:rho=1"),
        ("spectr:rho=inf", ["from 1"], "--verify spectr:rho=1"),
        ("token:x=1", ["'x'", "it has none"], "--verify token"),
        ("typicl:epsilon=0.1", ["'typicl'"], "--verify typical"),
    ],
)
def test_bad_parameters_of_rules(verify: str, words: list[str], hint: str) -> None:
    """One line with what is allowed, and a spelling that works."""
    with pytest.raises(UsageError) as caught:
        axes(verify=verify, approximate=True)
    assert all(word in caught.value.message for word in words), caught.value.message
    assert caught.value.hint == hint
    axes(verify=hint.removeprefix("--verify "), approximate=True)


def test_a_lossy_rule_is_offered_as_it_was_spelled() -> None:
    """The hint keeps the parameters."""
    with pytest.raises(UsageError) as caught:
        axes(verify="typical:epsilon=0.3")
    assert caught.value.hint == "--approximate --verify typical:epsilon=0.3"


def test_sizes_that_no_pass_takes() -> None:
    """A size of its own is refused before anything loads; -k is an upper bound, which a session clamps."""
    for spoken, hint in (
        ({"tree": "static:4,2,2,2,1,1,1"}, "--tree static:4,2,2"),
        ({"tree": "specinfer:32,1,1,1"}, "--tree specinfer:4,2,2"),
        ({"tree": f"dyspec:{MAX_NODES + 1}"}, "--tree dyspec:16"),
        ({"method": "lookahead", "options": (("W", "16"), ("N", "8"), ("G", "16"))}, "-o W=4 -o N=3 -o G=4"),
    ):
        with pytest.raises(UsageError, match=f"{MAX_NODES}$") as caught:
            axes(**spoken)
        assert caught.value.hint == hint
    assert axes(tree=f"dyspec:{MAX_NODES}").shape.nodes == MAX_NODES
    assert axes(k=500).shape.nodes == 500


def test_sizes_nobody_asked_for() -> None:
    """A tree gets more nodes than a chain; -k and the tree's own number say it otherwise."""
    assert axes(tree="dyspec").shape.nodes == axes(tree="eagle2:top=2").shape.nodes == TREE_NODES
    assert axes(tree="spectr").shape.leaves == 4
    assert axes(tree="dyspec", k=6).shape.nodes == axes(tree="dyspec:6").shape.nodes == 6
    assert axes(method="draft-model").shape.nodes == axes(tree="spectr:drafts=1").shape.nodes == 4
    assert axes(method="suffix").shape.nodes == 16


def test_a_method_that_k_does_not_size() -> None:
    """An option that would do nothing is refused."""
    with pytest.raises(UsageError, match="sets its own size, so -k does not apply"):
        axes(method="lookahead", k=9)
    assert axes(method="lookahead", k=0).shape.nodes == 0


def test_which_rules_take_trees() -> None:
    """Each rule that is registered, by what it says to a tree."""
    for name, rule in registered("verify").items():
        asked = Speculation(tree="static:2,1", verify=name, approximate=not rule.is_lossless)
        if name in ("block", "token"):
            with pytest.raises(UsageError, match=f"--verify {name} takes chains only, not trees"):
                resolve_axes(asked, has_draft=True, is_seeded=False)
        else:
            assert resolve_axes(asked, has_draft=True, is_seeded=False).verify == name
