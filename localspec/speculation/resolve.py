"""The four axes of speculation, from the names people type to one consistent choice.

method, tree, length and verifier are independent, but not every combination is exact or possible; an illegal one is
refused with a legal one named. Nothing here imports llama.cpp, so that the command line can refuse before it loads.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.control.candidates import MOST_DRAFTED
from localspec.engine.draft import Draw
from localspec.engine.protocols import Controller, Shape, TreePolicy, Verifier
from localspec.errors import UsageError, near_name
from localspec.methods import MethodInfo
from localspec.settings.declaration import Value, read_options, spelled
from localspec.settings.removed import check_removed
from localspec.settings.request import Speculation
from localspec.speculation import axis_names, registered
from localspec.trees.budget import MAX_LEAVES, MAX_NODES, TREE_NODES, BudgetTree, read_budget
from localspec.trees.chain_with_siblings import ChainWithSiblings
from localspec.trees.static import Static, read_widths

MAX_AUTO_CHAIN = 16  # tokens of a draft model's chain under the planner, where -k sets no other bound
DRAWN = frozenset({Draw.IID, Draw.WITHOUT_REPLACEMENT})


@dataclass(frozen=True, slots=True)
class Axes:
    """A legal combination. `policy` grows trees of at most `shape`, whose nodes are drawn as `draw`.

    `tree`, `length` and `verify` are spelled as people type them, with what follows the colon; `verifier` is the rule.

    `is_guarded`: nobody asked for this method by name, so it may be parked when it does not pay. A seed with a rule
    that draws in order of need is not guarded: there the text would depend on the machine's timing. `length` is "auto"
    where the automatic controller decides what is drafted, too: chains, under no rule that was asked for.
    `longest_copy` bounds the copies that the planner may add.
    `must_repeat`: there is a seed, and under the rule that was asked for the text depends on what is drafted.
    """

    method: str
    tree: str
    length: str
    verify: str
    verifier: Verifier
    policy: TreePolicy
    shape: Shape
    draw: Draw
    options: Mapping[str, Value]
    is_guarded: bool
    must_repeat: bool = False
    longest_copy: int = MOST_DRAFTED

    @property
    def is_automatic(self) -> bool:
        return self.length == "auto"

    def length_rule(self, shape: Shape) -> Controller:
        """Build the length rule for drafts of at most `shape`: the longest where `control/auto.py` plans."""
        name, _, argument = ("fixed" if self.is_automatic else self.length).partition(":")
        controller: Controller = registered("length")[name].build(argument, self.method, shape, self.draw)
        return controller


def resolve_axes(
    speculation: Speculation,
    *,
    has_draft: bool,
    is_seeded: bool,
    is_greedy: bool = False,
    has_exit: bool = False,
    draft_kind: str = "",
) -> Axes:
    """Return the axes with every `auto` decided; raise UsageError for names that do not exist or do not fit.

    `has_exit`: the target has an exit that pays. It drafts under `auto` where no model does, unless a seed promises
    the text. `draft_kind` is that of the pair's draft as in `MethodInfo`, "" where its file was not read yet.
    """
    may_wait = not is_seeded or speculation.verify in ("auto", "coupled")
    is_guarded = speculation.method == "auto" and speculation.k != 0 and may_wait
    kind = draft_kind or ("model" if has_draft else "")
    method = _method(speculation.method, kind, is_known=bool(draft_kind), has_exit=has_exit and is_guarded)
    info = registered("method")[method].info
    options = _options(method, info, speculation)
    if speculation.length != "auto":
        _name("length", speculation.length.partition(":")[0])
    is_automatic = is_guarded and speculation.tree == "chain" and speculation.length == "auto"
    policy, shape = _shaped(speculation, method, info, options, MAX_AUTO_CHAIN if is_automatic else info.default_k)
    is_chain = shape.leaves <= 1
    is_drawn = is_chain or not (info.has_own_shape or policy.draws.isdisjoint(DRAWN))
    verify = _verify(speculation, is_chain=is_chain, is_drawn=is_drawn, is_seeded=is_seeded, is_greedy=is_greedy)
    verifier = build_verifier(verify)
    draw = _draw(verifier, policy, is_chain=is_chain, is_coupled=verify == "coupled")
    if is_automatic and shape.nodes and draw is Draw.COUPLED:
        policy = ChainWithSiblings()  # its chains have siblings where rows are free
        shape = policy.shape(shape.nodes)
    shape = _pass_shape(method, shape) if info.has_scratch and shape.nodes else shape
    axes = Axes(
        method=method,
        tree=speculation.tree,
        length="fixed" if speculation.length == "auto" and not is_automatic else speculation.length,
        verify=verify,
        verifier=verifier,
        policy=policy,
        shape=shape,
        draw=draw,
        options=options,
        is_guarded=is_guarded,
        must_repeat=not may_wait,
        longest_copy=MOST_DRAFTED if speculation.k is None else speculation.k,
    )
    axes.length_rule(shape)  # reads the rule's argument: a wrong one is refused before anything loads
    return axes


def check_axis(axis: str, spelling: str) -> None:
    """Raise UsageError for what no model and no choice on another axis could make right."""
    match axis:
        case "method" if spelling != "auto":
            _name("method", spelling)
        case "verify" if spelling != "auto":
            build_verifier(spelling.rstrip(":"))
        case "tree":
            resolve_axes(Speculation(method="draft-model", tree=spelling), has_draft=True, is_seeded=False)
        case "length":
            resolve_axes(Speculation(method="draft-model", length=spelling), has_draft=True, is_seeded=False)


def _options(method: str, info: MethodInfo, speculation: Speculation) -> dict[str, Value]:
    """Return the options of a method; raises UsageError, for one of another method with that method's name.

    A method that `auto` takes is not named as if it had been typed.
    """
    is_chosen = speculation.method == method
    of = f"--method {method}" if is_chosen else f"{method}, which --method {speculation.method} takes here,"
    owners: dict[str, list[str]] = {}
    for each, cls in registered("method").items():
        for option in cls.info.options:
            owners.setdefault(option.name, []).append(each)
    for name, value in speculation.options:
        others = owners.get(name, [])
        if others and method not in others:
            message = f"{of} has no option {name!r}: that is of {' and '.join(others)}"
            raise UsageError(message, hint=f"--method {others[0]} -o {name}={value}")
        if not others and not is_chosen:
            near = near_name(name, owners)
            hint = f"--method {owners[near][0]} -o {near}={value}" if near else "localspec methods"
            raise UsageError(f"no method has an option {name!r}", hint=hint)
    return read_options(info.options, map("=".join, speculation.options), of=of)


def _shaped(
    asked: Speculation, method: str, info: MethodInfo, options: Mapping[str, Value], usual_k: int
) -> tuple[TreePolicy, Shape]:
    """Return the policy and the largest tree, of `usual_k` tokens if it is a chain and nothing was asked.

    Refuses sizes and shapes that would have no effect.
    """
    policy = build_tree(asked.tree)
    k = asked.k
    if k is None:
        is_tree = not info.has_own_shape and policy.shape(TREE_NODES).leaves > 1
        k = TREE_NODES if is_tree and info.default_k else usual_k
    if method == "plain":
        if asked.k and asked.method != method:
            why = "on --method auto without a draft model; --method suffix needs none"
            raise UsageError(f"-k {asked.k} has no effect {why}", hint="--draft FILE.gguf")
        if asked.k:
            hint = f"--method draft-model -k {asked.k}"
            raise UsageError(f"-k {asked.k} has no effect with --method plain", hint=hint)
        k = 0
    if k == 0:
        if asked.tree != "chain":
            raise UsageError(f"--tree {asked.tree} needs a method that drafts", hint="--tree chain")
        return policy, Shape(0, 0, 1)
    if info.has_own_shape:
        return policy, _own_shape(asked, method, info, options, k)
    what, fitting = f"--tree {asked.tree}", f"--tree {asked.tree.partition(':')[0]}:4,2,2"
    is_sized = policy.shape(1) == policy.shape(2)
    _check_size(policy.shape(k), asked, what, fitting, f"--tree chain -k {asked.k}", is_sized=is_sized)
    return policy, policy.shape(k)


def _own_shape(asked: Speculation, method: str, info: MethodInfo, options: Mapping[str, Value], k: int) -> Shape:
    """Return the largest tree of a method that chooses its shape by itself. Raises UsageError."""
    if asked.tree != "chain":
        raise UsageError(
            f"--method {method} chooses its own tree shape, so --tree does not apply", hint="leave out --tree"
        )
    cls = registered("method")[method]
    shape: Shape = cls.shape(k, options)
    what = " ".join([f"--method {method}", *(f"-o {name}={text}" for name, text in asked.options)])
    usual = {option.name: spelled(option.default) for option in info.options}
    fitting = " ".join(f"-o {name}={usual[name]}" for name, _ in asked.options) or info.unbranched
    is_sized = cls.shape(1, options) == cls.shape(2, options)
    _check_size(shape, asked, what, fitting, "leave out -k", is_sized=is_sized)
    return shape


def _check_size(shape: Shape, asked: Speculation, what: str, fitting: str, by_k: str, *, is_sized: bool) -> None:
    """Raise UsageError for a tree that is too large, or for -k where the tree has its own size (`is_sized`).

    `what` spells the tree as it was asked for. `fitting` and `by_k` are the hints.
    """
    if asked.k is not None and is_sized:
        raise UsageError(f"{what} sets its own size, so -k does not apply", hint=by_k)
    if shape.leaves > MAX_LEAVES:
        raise UsageError(f"{what} has {shape.leaves} leaves, and the most is {MAX_LEAVES}", hint=fitting)
    if is_sized and shape.nodes > MAX_NODES:
        raise UsageError(f"{what} has {shape.nodes} nodes, and a pass takes at most {MAX_NODES}", hint=fitting)


def _pass_shape(method: str, shape: Shape) -> Shape:
    """Return the shape of a pass that holds a tree of `shape` and the method's scratch nodes. Raises UsageError."""
    whole: Shape = registered("method")[method].pass_shape(shape)
    if whole.nodes > MAX_NODES or whole.leaves > MAX_LEAVES:
        raise UsageError(
            f"--method {method} needs {whole.nodes} nodes for a draft of {shape.nodes}, and a pass takes at most "
            f"{MAX_NODES} with {MAX_LEAVES} leaves",
            hint=f"--method {method} -k 3",
        )
    return whole


def _name(axis: str, name: str) -> str:
    """Return `name` if the axis has it; else raise UsageError with the nearest one."""
    known = registered(axis)
    if name in known:
        return name
    check_removed(f"--{axis} {name}")
    raise UsageError(
        f"--{axis} {name!r} does not exist; there are {', '.join(axis_names(axis))}",
        hint=f"--{axis} {near_name(name, known) or axis_names(axis)[0]}",
    )


def _method(name: str, draft_kind: str, *, is_known: bool, has_exit: bool) -> str:
    """Decide `auto` and refuse a method whose draft is missing, or is known to be of another kind.

    `draft-model` stands for any draft: a head drafts by the method of its kind.
    """
    if name == "auto" and not draft_kind:
        return "early-exit" if has_exit else "plain"
    drafting = next(
        (each for each, cls in registered("method").items() if draft_kind and cls.info.draft_kind == draft_kind), ""
    )
    if name == "auto":
        return "plain" if registered("method")[drafting].info.has_scratch else drafting
    method = _name("method", name)
    info = registered("method")[method].info
    if info.draft_kind and not draft_kind:
        raise UsageError(f"--method {method} needs {info.needs}, and the pair has none", hint="--draft FILE.gguf")
    if method == "draft-model":
        return drafting
    if info.draft_kind and is_known and info.draft_kind != draft_kind:
        raise UsageError(
            f"--method {method} needs {info.needs}, and the pair has {registered('method')[drafting].info.needs}",
            hint=f"--method {drafting}",
        )
    return method


def build_tree(spelling: str) -> TreePolicy:
    """Build the policy that "name" or "name:argument" stands for. Raises UsageError."""
    name, _, argument = spelling.partition(":")
    cls = registered("tree")[_name("tree", name)]
    policy: TreePolicy
    if issubclass(cls, Static):
        policy = cls(read_widths(name, argument))
    elif issubclass(cls, BudgetTree):
        nodes, words = read_budget(name, argument)
        policy = cls(
            nodes, **read_options(cls.options, words, of=f"--tree {name}", start=f"--tree {name}:{nodes or 16},")
        )
    elif argument:
        raise UsageError(f"--tree {name} takes no shape, not {argument!r}", hint=f"--tree {name} -k 4")
    else:
        policy = cls()
    return policy


def _verify(asked: Speculation, *, is_chain: bool, is_drawn: bool, is_seeded: bool, is_greedy: bool) -> str:
    """Return the rule; one that is left open accepts most of what can be promised. Refuse one that does not fit."""
    if asked.verify == "auto":
        if is_greedy and not is_chain:
            return "match"  # nothing is drawn: the likeliest tokens are the best children
        if is_seeded or not is_drawn:
            return "coupled"  # the seed promises the text; and what was not drawn cannot be rejected jointly
        return "block" if is_chain else "traversal"
    verify = asked.verify.rstrip(":")
    rule = build_verifier(verify)
    if not is_chain and not rule.trees:
        raise UsageError(f"--verify {verify} takes chains only, not trees", hint="--verify tree")
    if not rule.is_lossless and not asked.approximate:
        raise UsageError(
            f"--verify {verify} changes the distribution of the output", hint=f"--approximate --verify {verify}"
        )
    return verify


def build_verifier(spelling: str) -> Verifier:
    """Build the rule that "name" or "name:key=value,..." stands for. Raises UsageError."""
    name, _, argument = spelling.partition(":")
    cls = registered("verify")[_name("verify", name)]
    words = argument.split(",") if argument else []
    declared = getattr(cls, "options", ())
    rule: Verifier = cls(**read_options(declared, words, of=f"--verify {name}", start=f"--verify {name}:"))
    return rule


def _draw(rule: Verifier, policy: TreePolicy, *, is_chain: bool, is_coupled: bool) -> Draw:
    """Return how drafts are best drawn for a rule: the way that loses no acceptance, of those right for the policy."""
    if Draw.COUPLED in rule.accepts:
        return Draw.COUPLED if is_coupled else Draw.FIXED
    drawn = (Draw.IID, Draw.WITHOUT_REPLACEMENT) if is_chain else (Draw.WITHOUT_REPLACEMENT, Draw.IID)
    return next((how for how in drawn if how in rule.accepts and how in policy.draws), Draw.FIXED)
