"""`localspec explain NAME` and `localspec methods`: methods, trees, length rules and verifiers on pages."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import click

from localspec.cli.complete import explained_names
from localspec.cli.console import columns_of_stdout, is_terminal
from localspec.cli.output import write_result
from localspec.cli.params import Command, json_option
from localspec.errors import UsageError
from localspec.ui.explain import AXES, Explanation, Page, pages, spelled
from localspec.ui.explain import explain as explanation_of
from localspec.ui.glossary import TERMS

if TYPE_CHECKING:
    from localspec.cli.names_explained import Named

USES = {"everyday": "", "laboratory": ", laboratory: no gain was measured on a real model or a named device"}
WIDTH = 88
KINDS = {"method": "drafting method", "tree": "tree policy", "length": "length rule", "verify": "verifier"}


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})  # --temp is a name here
@click.argument("name", nargs=-1, shell_complete=explained_names)
@json_option
def explain(name: tuple[str, ...], as_json: bool) -> int:
    """Explain a drafting method, tree policy, length rule, verifier, term, option or field of --json by its name.

    A page has the idea, the formula, when it helps and when it hurts, the options, the source, and whether the output
    keeps the target's distribution. localspec methods lists these names.

    Terms such as acceptance, pass, verdict or ttft are explained in a few sentences. Without NAME all terms are listed.
    For options, settings, commands, exit codes and fields of --json it shows their help or their part of the docs.
    """
    if not name:
        return _list_terms(as_json=as_json)
    from localspec.cli.names_explained import Named, known, named  # late: it imports every command

    others = named(" ".join(name))
    try:
        explained = explanation_of(" ".join(name), known)
    except UsageError:
        if not others:
            raise
        explained = Explanation(None, ())
    else:
        others = [each for each in others if each.is_option]  # else two words for one thing
    wire = {**explained.to_wire(), "others": [each.to_wire() for each in others]}
    term, parts = explained.term, [*map(lines, explained.pages), *map(named_lines, others)]
    if term is not None:
        more = f"See also: {', '.join(term.see)}" if term.see else ""
        parts.insert(0, named_lines(Named(f"{term.name}: {term.short}", term.text, more)))
    return write_result(wire, "\n\n".join("\n".join(each) for each in parts), as_json=as_json)


def _list_terms(*, as_json: bool) -> int:
    widest = max(len(term.name) for term in TERMS.values())
    rows = []
    for term in TERMS.values():
        rows += _wrapped(term.short, f"{term.name:<{widest}}  ", " " * (widest + 2))
    end = "One of them in full: localspec explain TERM. Methods, trees and rules: localspec methods"
    wire = {"terms": [term.to_wire() for term in TERMS.values()]}
    return write_result(wire, "\n".join([*rows, "", end]), as_json=as_json)


def named_lines(other: Named) -> Iterator[str]:
    yield from _wrapped(other.title, "", "  ")
    yield from _wrapped(other.text, "  ")
    if other.more:
        yield from ("", *_wrapped(other.more, "  "))


def lines(page: Page) -> Iterator[str]:
    yield f"{page.name}: {KINDS[page.axis]}"
    yield from _wrapped(page.summary, "  ")
    yield ""
    use = page.measured or "no gain over plain decoding was measured on a real model or a named device"
    lossless = "yes" if page.axis in ("method", "verify") else "yes, under every lossless verifier"
    if not page.is_lossless:
        lossless = "NO: it changes the distribution of the output, so it needs --approximate"
    rows = [("type", page.usage), ("needs", page.needs), ("lossless", lossless), ("use", f"{page.mark_of_use}. {use}")]
    if page.papers:
        rows.append(("paper", ", ".join(f"https://arxiv.org/abs/{paper}" for paper in page.papers)))
    if page.default_k is not None:
        rows.append(("-k", f"{page.default_k} unless given"))
    for label, text in rows:
        yield from _wrapped(text, f"  {label:<9}", " " * 11)
    for title, text in (("Idea", page.idea), ("When it helps", page.helps), ("When it hurts", page.hurts)):
        if text:
            yield from ("", title)
            for paragraph in text.split("\n\n"):
                yield from _wrapped(paragraph, "  ")
        if title == "Idea" and page.formula:
            yield from ("", "Formula", *(f"    {line}".rstrip() for line in page.formula.splitlines()))
    yield from _options(page)
    yield from _bias(page)


def _options(entry: Page) -> Iterator[str]:
    if not entry.options and not entry.argument:
        return
    yield from ("", "Options")
    if entry.argument:
        yield f"  after the colon: a number {entry.argument}"
    for option in entry.options:
        yield f"  {entry.mark}{spelled(option)}"
        yield from _wrapped(f"{option.help} ({option.range})", "      ")


def _bias(page: Page) -> Iterator[str]:
    if not page.bias:
        return
    yield from ("", "Measured bias")
    head = (
        "Total variation between the distribution of four tokens under the rule and the target's own, in the worst of "
        "five toy models. It is enumerated, not sampled."
    )
    yield from _wrapped(head, "  ")
    yield ""
    temperatures = list(page.bias[0]["total_variation"])
    yield f"  {'':26}" + "".join(f"{f'T={temperature}':>9}" for temperature in temperatures)
    for bias in page.bias:
        yield f"  {bias['case']:26}" + "".join(f"{bias['total_variation'][each]:9.4f}" for each in temperatures)


def _wrapped(text: str, first: str, other: str = "") -> list[str]:
    width = min(WIDTH, columns_of_stdout() - 1) if is_terminal(sys.stdout) else WIDTH
    return textwrap.wrap(
        " ".join(text.split()), width, initial_indent=first, subsequent_indent=other or first,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


@click.command(cls=Command)
@json_option
def methods(as_json: bool) -> int:
    """List drafting methods, tree shapes, length rules and verifiers.

    Everyday methods come first: each has a measured gain. The others are experimental.

    The four are independent. localspec run refuses a combination that does not work and names one that does. localspec
    explain NAME says more about each.
    """
    listed = {axis: [page.to_wire(has_prose=False) for page in pages(axis)] for axis in AXES}
    return write_result({"methods": listed.pop("method"), **listed}, _listing().rstrip("\n"), as_json=as_json)


def _listing() -> str:
    formatter = click.HelpFormatter(width=100)
    for axis, use in product(AXES, USES):
        with formatter.section(f"--{axis}{USES[use]}"):
            rows = []
            for entry in (page for page in pages(axis) if page.mark_of_use == use):
                rows.append((entry.name, about(entry)))
                mark = "-o " if axis == "method" else ""
                rows += [(f"  {mark}{spelled(option)}", f"{option.help} ({option.range})") for option in entry.options]
                if entry.argument:
                    rows.append((f"  {entry.usage.split()[-1]}", entry.argument))
            formatter.write_dl(rows, col_max=34)
    return formatter.getvalue().removeprefix("\n")


def about(entry: Page) -> str:
    papers = f" (arXiv {', '.join(entry.papers)})" if entry.papers else ""
    needs = f"; needs {entry.needs}" if entry.axis == "method" and entry.needs != "nothing" else ""
    exact = "" if entry.axis in ("tree", "length") else "; lossless" if entry.is_lossless else "; NOT lossless"
    return f"{entry.summary.rstrip('.')}{papers}{needs}{exact}"
