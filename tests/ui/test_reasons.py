"""Every reason that the lines below an answer give is explained by `localspec explain`, in its own words."""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType

import pytest

from localspec.control import auto, candidates
from localspec.engine.events import NOT_YET
from localspec.settings.sizes import counted
from localspec.ui import speedup, stats, summary
from localspec.ui.explain import explain
from tests.recorded import recorded_expressions

SHORT = 3  # words: less is a part of a sentence


def told(part: ast.expr) -> str:
    """Return a literal as it may be shown: numbers in place of what is filled in."""
    match part:
        case ast.JoinedStr(values):
            return "".join(map(told, values))
        case ast.Constant(str(text)):
            return text
        case ast.FormattedValue(ast.Name("NOT_YET")):
            return NOT_YET
        case ast.FormattedValue(ast.Call(ast.Name("counted"), [_, ast.Constant(str(noun)), *_])):
            return counted(9, noun)
    return "9"


def literals(where: ast.AST) -> Iterator[str]:
    """Yield the outermost texts below a node, docstrings left out."""
    for each in ast.iter_child_nodes(where):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            continue
        if isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str)):
            yield told(each)
        else:
            yield from literals(each)


def reasons(module: ModuleType) -> Iterator[str]:
    """Yield the texts of functions and names called why_not or verdict, of `why`, and of `_plain`."""
    for each in ast.walk(ast.parse(inspect.getsource(module))):
        match each:
            case ast.FunctionDef(name="why_not" | "findings" | "standing"):
                yield from literals(each)
            case ast.Assign(targets=[ast.Name(id="why_not")]):
                yield from literals(each)
            case ast.Call(func=ast.Attribute(attr="_plain")) | ast.keyword(arg="why", value=ast.Constant()):
                yield from literals(each)


FOUND = {text for module in (auto, candidates, speedup, stats, summary) for text in reasons(module)}
CONSTANTS = {
    candidates.DEAR,
    candidates.TOO_FEW,
    candidates.EARLY,
    candidates.NOTHING,
    summary.PLAIN,
    summary.ALIKE,
    summary.UNCLEAR,
    summary.DEMONSTRATION,
    NOT_YET,
    *summary.SENTENCES.values(),
}
WHOLE = sorted({text for text in FOUND if len(text.split()) > SHORT and text[0].isalpha()} | CONSTANTS)


def test_reasons_are_found() -> None:
    risk = "it would win 9 ms on average, but lose 9: not worth the risk"
    for said in ("no guess was likely to win back the time that it takes", risk, "the machine changed its pace"):
        assert said in WHOLE
    assert len(WHOLE) > 20


@pytest.mark.parametrize("text", WHOLE)
def test_each_reason_is_explained(text: str) -> None:
    assert explain(text).term is not None


test_what_is_recorded = recorded_expressions(__file__, explain)
