"""The changes that scripts/mutate makes: one operator on one node of a parsed file.

Left alone are docstrings, texts, annotations, imports and assertions. A text counts where it is compared or is a key.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

FLIPPED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
NEIGHBOUR = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Delete)
UNTOUCHED = (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.Global, ast.Nonlocal)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutation:
    """One change: `apply` makes it in the tree that it was found in."""

    line: int
    operator: str
    old: Sequence[ast.AST]
    new: Sequence[ast.AST]
    apply: Callable[[], None]

    def texts(self) -> tuple[str, str]:
        """Return the code before and after; of a statement with a body its head alone."""
        old, new = ("; ".join(ast.unparse(node).splitlines()[0] for node in nodes) for nodes in (self.old, self.new))
        return old, new


def mutations(tree: ast.Module) -> list[Mutation]:
    """Return every change of a parsed file, in the order of the file. Equal files have equal lists."""
    modules = {
        (name.asname or name.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    found = _below(tree, is_code=False)
    return [one for one in found if one.operator != "order" or _does_order_matter(*one.old, imported=modules)]


def _below(node: ast.AST, *, is_code: bool) -> Iterator[Mutation]:
    inside = isinstance(node, Function) or (is_code and not isinstance(node, ast.ClassDef))
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "ctx", "op", "ops"):
            continue
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield from _of_block(node, value, is_code=inside)
        for at, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not isinstance(child, UNTOUCHED) and not _is_text(child):
                if isinstance(child, ast.expr):
                    yield from _of_expression(node, name, at if isinstance(value, list) else None, child)
                yield from _below(child, is_code=inside)


def _is_text(node: ast.AST) -> bool:
    """Whether the statement is a docstring or `...`."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _of_expression(parent: ast.AST, field: str, at: int | None, node: ast.expr) -> Iterator[Mutation]:
    """Yield the changes that put another expression in the place of this one."""

    def put(operator: str, new: ast.expr) -> Mutation:
        def apply() -> None:
            if at is None:
                setattr(parent, field, new)
            else:
                getattr(parent, field)[at] = new

        return Mutation(node.lineno, operator, [node], [new], apply)

    if (field == "test" and not isinstance(node, ast.Constant)) or (
        isinstance(parent, ast.comprehension) and field == "ifs"
    ):
        yield put("condition dropped", ast.Constant(True))
        yield put("condition dropped", ast.Constant(False))
        yield put("condition negated", ast.UnaryOp(ast.Not(), node))
    if isinstance(node, ast.Compare):
        for n, op in enumerate(node.ops):
            for operator, table in (("comparison", FLIPPED), ("boundary", NEIGHBOUR)):
                if type(op) in table:
                    ops = [*node.ops[:n], table[type(op)](), *node.ops[n + 1 :]]
                    yield put(operator, ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BoolOp):
        yield put("and/or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for n in range(len(node.values)):
            rest = node.values[:n] + node.values[n + 1 :]
            yield put("condition dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.Constant):
        if (new := _other(node.value, is_key=isinstance(parent, ast.Compare | ast.Subscript))) is not None:
            yield put("constant", ast.Constant(new))
    elif isinstance(node, ast.Call):
        positional = [n for n, value in enumerate(node.args) if not isinstance(value, ast.Starred)]
        if len(node.args) + len(node.keywords) > 1 and positional:
            rest = [value for n, value in enumerate(node.args) if n != positional[-1]]
            yield put("argument dropped", ast.Call(node.func, rest, node.keywords))
        for n in range(len(node.keywords)):
            yield put("argument dropped", ast.Call(node.func, node.args, node.keywords[:n] + node.keywords[n + 1 :]))
    elif isinstance(node, ast.Slice):
        lower = ast.BinOp(node.lower, ast.Add(), ast.Constant(1)) if node.lower else ast.Constant(1)
        yield put("off by one", ast.Slice(lower, node.upper, node.step))
        if node.upper:
            yield put("off by one", ast.Slice(node.lower, ast.BinOp(node.upper, ast.Sub(), ast.Constant(1)), node.step))


def _other(value: Any, *, is_key: bool) -> Any:
    """Return another constant of the same type, None for one that is left alone."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 2 or 1.0
    return value + b"_" if isinstance(value, bytes) else value + "_" if isinstance(value, str) and is_key else None


def _of_block(parent: ast.AST, body: list[ast.stmt], *, is_code: bool) -> Iterator[Mutation]:
    """Yield the changes of one statement, or of two in a row, in a block; `is_code` tells that it is in a function."""

    def put(operator: str, at: int, old: list[ast.stmt], new: list[ast.stmt]) -> Mutation:
        def apply() -> None:
            body[at : at + len(old)] = new

        return Mutation(old[0].lineno, operator, old, new, apply)

    if isinstance(parent, ast.ExceptHandler) and not isinstance(body[0], ast.Pass):
        yield put("exception swallowed", 0, body[:], [ast.Pass()])
    for at, node in enumerate(body):
        if isinstance(node, ast.Raise):
            yield put("exception swallowed", at, [node], [ast.Pass()])
        if is_code and at > 0 and all(isinstance(one, SIMPLE) and not _is_text(one) for one in (body[at - 1], node)):
            yield put("order", at - 1, body[at - 1 : at + 1], [node, body[at - 1]])
    last = body[-1]
    if is_code and not isinstance(last, (ast.Return, ast.Raise, ast.Pass, *UNTOUCHED)) and not _is_text(last):
        yield put("early return", len(body) - 1, [last], [ast.Return(), last])


def _does_order_matter(first: ast.AST, second: ast.AST, *, imported: set[str]) -> bool:
    """Whether one of two statements writes what the other reads or writes."""
    (read, written), (read_too, written_too) = _uses(first, imported), _uses(second, imported)
    return bool(written & (read_too | written_too) or written_too & read)


def _uses(statement: ast.AST, imported: set[str]) -> tuple[set[str], set[str]]:
    """Return the names that a statement reads, and those that it writes: an attribute of `self` counts as a name.

    An item or an attribute that is assigned writes its owner, and so does a method whose result nobody takes.
    """
    named = list(_named(statement))
    read = {name for name, node in named if isinstance(node.ctx, ast.Load)}
    written = {name for name, node in named if not isinstance(node.ctx, ast.Load)}
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            written |= _owner(node.value)
    if isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        written |= (_owner(call.func.value) if isinstance(call.func, ast.Attribute) else set()) - imported
    return read | (written if isinstance(statement, ast.AugAssign) else set()), written


def _owner(node: ast.expr) -> set[str]:
    """Return the name whose object an expression is a part of."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if _is_of_self(node):
            return {node.attr}
        node = node.value
    return {node.id} if isinstance(node, ast.Name) and node.id != "self" else set()


def _is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _named(node: ast.AST) -> Iterator[tuple[str, ast.Name | ast.Attribute]]:
    """Yield the names in a node, and the attributes of `self`, without those of annotations."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if _is_of_self(child):
                yield child.attr, child
            elif isinstance(child, ast.AST) and field != "annotation":
                yield from [(child.id, child)] if isinstance(child, ast.Name) else _named(child)
