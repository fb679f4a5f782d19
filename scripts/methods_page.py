"""docs/methods.md: every method, tree policy, length rule and verifier, by declarations and localspec/ui/pages."""

from __future__ import annotations

from localspec.ui.explain import AXES, Page, pages, spelled

MADE = (
    "Made by `scripts/docs.py` from the program; do not edit. `localspec explain NAME` prints a page in the terminal."
)
BIAS = (
    "Measured bias: total variation of the distribution of four tokens, enumerated on the worst of five toy models "
    "(`tests/exact/test_approximate.py`)."
)
USE = (
    "**Everyday** are those with which a gain over plain decoding was measured, on a real model or a named device. The "
    "others are for the **laboratory**: exact too, unless they are marked, and without such a measurement.\n"
)
TITLES = {"method": "Drafting methods", "tree": "Tree policies", "length": "Length rules", "verify": "Verifiers"}
LEADS = {
    "method": "A drafting method guesses tokens: `--method NAME`, with `-o OPTION=VALUE`.",
    "tree": "A tree policy shapes the draft of a method that has distributions: `--tree NAME:NODES,OPTION=VALUE`. "
    "Without a number of nodes it takes `-k`, else 16. Every policy is exact under every lossless verifier.",
    "length": "A length rule ends a draft early, within `-k` or the tree: `--length NAME:LIMIT`. All are exact.",
    "verify": "A verifier accepts or refuses drafted tokens: `--verify NAME:OPTION=VALUE`. `auto` takes `block` for "
    "chains and `traversal` for drawn trees. It takes `coupled` for chosen trees and with `--seed`, and `match` for "
    "trees at `--temp 0`.",
}


def page() -> str:
    """Return the whole page."""
    parts = [f"# Methods\n\n{MADE}\n", USE]
    for axis in AXES:
        found = pages(axis)
        parts += [f"## {TITLES[axis]}\n", f"{LEADS[axis]}\n", overview(list(found))]
        parts += [section(one) for one in found]
    return "\n".join(parts)


def overview(listed: list[Page]) -> str:
    """Return the table of one axis."""
    is_method = listed[0].axis == "method"
    rows = ["| name | what it does | needs | paper | lossless | use |" + (" default `-k` |" if is_method else "")]
    rows.append("|---|---|---|---|---|---|" + ("---|" if is_method else ""))
    for one in listed:
        exact = "yes" if one.is_lossless else "**no**"
        cells = [f"`{one.name}`", cell(one.summary), cell(one.needs), papers(one), exact, one.mark_of_use]
        rows.append("| " + " | ".join(cells + ([str(one.default_k)] if is_method else [])) + " |")
    return "\n".join(rows) + "\n"


def section(one: Page) -> str:
    """Return one name's part."""
    title = f"### {one.name}" + (" (verifier)" if one.axis == "verify" else "")
    lines = [title, "", f"`{one.usage}`", "", one.idea]
    if one.formula:
        lines += ["", "```text", one.formula, "```"]
    lines += ["", f"**Helps.** {one.helps}", "", f"**Hurts.** {one.hurts}"]
    lines += ["", f"**Measured.** {one.measured}"] if one.measured else []
    if one.options or one.argument:
        lines += ["", "| option and default | values | meaning |", "|---|---|---|"]
    if one.argument:
        lines.append(f"| `{one.usage.split()[-1]}` | {one.argument.partition(' (')[0]} | the limit |")
    for option in one.options:
        lines.append(f"| `{spelled(option)}` | {cell(option.range)} | {cell(option.help)} |")
    if one.bias:
        temperatures = list(one.bias[0]["total_variation"])
        lines += ["", BIAS, "", "| case | " + " | ".join(f"T={t}" for t in temperatures) + " |"]
        lines.append("|---|" + "---|" * len(temperatures))
        for bias in one.bias:
            cells = [bias["case"], *(f"{bias['total_variation'][each]:.4f}" for each in temperatures)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def papers(one: Page) -> str:
    """Return links."""
    return ", ".join(f"[{paper}](https://arxiv.org/abs/{paper})" for paper in one.papers)


def cell(text: str) -> str:
    """Return text that a table's cell can hold."""
    return text.replace("|", "\\|")
