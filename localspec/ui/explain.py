"""Explanations of the names on the command line: facts from the class of each, prose from pages/.

Facts are read off declarations: name, options, usage, paper, whether the rule is exact. `pages/AXIS/NAME.md` holds what
no declaration says: the idea, when it helps, when it hurts; and the formula, unless the docstring of module or class
has it as an indented block. The bias of lossy rules is what tests/exact measures (`pages/bias.json`, written by
scripts/docs.py).
"""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from localspec.engine.draft import Draw
from localspec.engine.protocols import Shape
from localspec.errors import UsageError, near_name
from localspec.methods import MethodInfo
from localspec.settings.declaration import Option
from localspec.settings.declaration import spelled as spelled_value
from localspec.settings.removed import check_removed
from localspec.speculation import registered
from localspec.speculation.resolve import build_tree
from localspec.ui import glossary
from localspec.ui.glossary import Term

PAGES = files("localspec.ui") / "pages"
WITHOUT_PAPER = ("chain",)  # the one that its module names is its neighbour's
_ARXIV = re.compile(r"arXiv (\d{4}\.\d{5})")


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that is told of one name: facts from declarations, then prose.

    `argument` follows the colon of a length rule; `draws`: how drafts may be drawn; `mark` stands before an option as
    it is typed. `measured` names a gain that docs/benchmarks.md has, "" for none. Paragraphs are separated by an empty
    line; the formula keeps its lines. `bias` are cases with the measured total variation between a lossy rule's
    distribution and the target's, by temperature.
    """

    axis: str
    name: str
    summary: str
    usage: str
    needs: str
    papers: tuple[str, ...]  # arXiv ids
    is_lossless: bool
    options: tuple[Option, ...] = ()
    mark: str = ""
    argument: str = ""
    draws: tuple[str, ...] = ()
    default_k: int | None = None
    measured: str = ""
    idea: str = ""
    formula: str = ""
    helps: str = ""
    hurts: str = ""
    bias: tuple[dict[str, Any], ...] = ()

    @property
    def mark_of_use(self) -> str:
        """Return "everyday" where a gain was measured on a real model or a named device, else "laboratory"."""
        return "everyday" if self.measured else "laboratory"

    def to_wire(self, *, has_prose: bool = True) -> dict[str, Any]:
        names = self.__slots__ if has_prose else self.__slots__[: self.__slots__.index("idea")]
        return {**{name: getattr(self, name) for name in names}, "options": [*map(option_to_wire, self.options)]}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything of one name: the term of the glossary, if it is one, and every page. `spectr` has two pages."""

    term: Term | None
    pages: tuple[Page, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"pages": [page.to_wire() for page in self.pages], "term": self.term and self.term.to_wire()}


def spelled(option: Option) -> str:
    return f"{option.name}={spelled_value(option.default)}"


def option_to_wire(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "type": type(option.default).__name__,
        "default": option.default,
        "low": option.low if math.isfinite(option.low) else None,
        "high": option.high if math.isfinite(option.high) else None,
        "choices": option.choices,
        "range": option.range,
        "help": option.help,
    }


def pages(axis: str) -> tuple[Page, ...]:
    return tuple(_with_prose(_AXES[axis](name, cls), cls) for name, cls in registered(axis).items())


def explain(name: str, others: Callable[[], Iterable[str]] = tuple) -> Explanation:
    """Return everything of that name. Raises UsageError with the nearest name, of these or of the `others`."""
    term = glossary.find(name)
    found = tuple(page for axis in _AXES for page in pages(axis) if page.name in (name, glossary.key(name)))
    if not found and term is None:
        check_removed(name)
        known = list(dict.fromkeys([*(n for axis in _AXES for n in registered(axis)), *glossary.names(), *others()]))
        draft = name.rpartition("+")[2]  # of a pair
        near = near_name(glossary.key(draft), known, 0.65)
        raise UsageError(
            f"there is no method, rule, term, option or field called {name!r}"
            + (f"; did you mean {near!r}?" if near else ""),
            hint=f"localspec explain {near}" if near else "localspec methods",
        )
    return Explanation(term, found)


def _method(name: str, cls: Any) -> Page:
    info: MethodInfo = cls.info
    return Page(
        axis="method",
        name=name,
        summary=info.summary,
        usage=f"--method {name}",
        needs=info.needs,
        papers=tuple(dict.fromkeys([*([info.paper] if info.paper else []), *_papers(cls)])),
        is_lossless=info.is_lossless,
        options=info.options,
        mark="-o ",
        default_k=info.default_k,
    )


def _tree(name: str, cls: Any) -> Page:
    usage = _refusal(lambda: build_tree(f"{name}:?")).hint
    return Page(
        axis="tree",
        name=name,
        summary=_summary(cls),
        usage=usage,
        needs="a draft with distributions: of a model, a head, an early exit or mask tokens",
        papers=() if name in WITHOUT_PAPER else _papers(cls),
        is_lossless=True,  # under every lossless rule: a plan draws only in a way that both are right for
        options=getattr(cls, "options", ()),
        mark=f"{usage},",
        draws=_ways(cls.draws),
    )


def _length(name: str, cls: Any) -> Page:
    refusal = _refusal(lambda: cls.build("?", "draft-model", Shape(1, 1, 1), Draw.FIXED))
    allowed = refusal.message.partition("out of range: ")[2]
    return Page(
        axis="length",
        name=name,
        summary=_summary(cls),
        usage=refusal.hint,
        needs="a draft model's distributions" if allowed else "nothing",
        papers=_papers(cls),
        is_lossless=True,  # decided before the draw it is about
        argument=f"{allowed} (default {refusal.hint.partition(':')[2]})" if allowed else "",
    )


def _verifier(name: str, cls: Any) -> Page:
    return Page(
        axis="verify",
        name=name,
        summary=_summary(cls),
        usage=f"--verify {name}" if cls.is_lossless else f"--approximate --verify {name}",
        needs="a chain or a tree" if cls.trees else "a chain",
        papers=_papers(cls),
        is_lossless=cls.is_lossless,
        options=getattr(cls, "options", ()),
        mark=f"--verify {name}:",
        draws=_ways(cls.accepts),
    )


_AXES: dict[str, Callable[[str, Any], Page]] = {
    "method": _method,
    "tree": _tree,
    "length": _length,
    "verify": _verifier,
}
AXES = tuple(_AXES)


def _refusal(call: Callable[[], object]) -> UsageError:
    try:
        call()
    except UsageError as refusal:
        return refusal
    raise AssertionError("an argument of '?' must be refused")


def _ways(draws: frozenset[Draw]) -> tuple[str, ...]:
    return tuple(sorted(draw.value for draw in draws))


def _summary(cls: Any) -> str:
    return " ".join(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].split())


def _doc(cls: Any) -> str:
    return inspect.getdoc(inspect.getmodule(cls)) or ""


def _docs(cls: Any) -> str:
    return f"{_doc(cls)}\n\n{inspect.getdoc(cls) or ''}"


def _papers(cls: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_ARXIV.findall(_docs(cls))))


def _formula(cls: Any) -> str:
    blocks = [block for block in _docs(cls).split("\n\n") if block.startswith("    ")]
    return "\n\n".join(inspect.cleandoc("\n" + block) for block in blocks)


def _with_prose(page: Page, cls: Any) -> Page:
    path, stored = PAGES / page.axis / f"{page.name}.md", PAGES / "bias.json"
    parts = re.split(r"^## (.+)$", path.read_text(encoding="utf-8") if path.is_file() else "", flags=re.MULTILINE)
    texts = {title: body.strip("\n") for title, body in zip(parts[1::2], parts[2::2], strict=True)}
    biases = json.loads(stored.read_text(encoding="utf-8")) if stored.is_file() and not page.is_lossless else {}
    return replace(
        page,
        measured=texts.get("Measured", ""),
        idea=texts.get("Idea") or _doc(cls),
        formula=texts.get("Formula") or _formula(cls),
        helps=texts.get("Helps", ""),
        hurts=texts.get("Hurts", ""),
        bias=tuple(biases.get(page.name, ())),
    )
