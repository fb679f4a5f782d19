"""docs/methods.md: every method, tree policy, length rule and verifier, with the results of scripts/methods_table.

Everything comes from the declarations, from localspec/ui/pages and from docs/methods-table.json. Nothing is measured
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localspec.ui.explain import AXES, MethodFacts, Page, pages, spelled

TABLE = Path(__file__).parent.parent / "docs" / "methods-table.json"
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
    parts = [f"# Methods\n\n{MADE} The last part has [measurements](#measured).\n", USE]
    for axis in AXES:
        found = pages(axis)
        parts += [f"## {TITLES[axis]}\n", f"{LEADS[axis]}\n", overview([one.facts for one in found])]
        parts += [section(one) for one in found]
    parts.append("## Measured\n")
    if TABLE.is_file():
        parts += measured(json.loads(TABLE.read_text(encoding="utf-8")))
    else:
        parts.append("Not measured yet: `./scripts/methods_table`.\n")
    return "\n".join(parts)


def overview(listed: list[MethodFacts]) -> str:
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
    facts = one.facts
    title = f"### {facts.name}" + (" (verifier)" if facts.axis == "verify" else "")
    lines = [title, "", f"`{facts.usage}`", "", one.idea]
    if one.formula:
        lines += ["", "```text", one.formula, "```"]
    lines += ["", f"**Helps.** {one.helps}", "", f"**Hurts.** {one.hurts}"]
    lines += ["", f"**Measured.** {facts.measured}"] if facts.measured else []
    if facts.options or facts.argument:
        lines += ["", "| option and default | values | meaning |", "|---|---|---|"]
    if facts.argument:
        lines.append(f"| `{facts.usage.split()[-1]}` | {facts.argument.partition(' (')[0]} | the limit |")
    for option in facts.options:
        lines.append(f"| `{spelled(option)}` | {cell(option.range)} | {cell(option.help)} |")
    if one.bias:
        temperatures = list(one.bias[0].by_temperature)
        lines += ["", BIAS, "", "| case | " + " | ".join(f"T={t}" for t in temperatures) + " |"]
        lines.append("|---|" + "---|" * len(temperatures))
        for bias in one.bias:
            lines.append(f"| {bias.case} | " + " | ".join(f"{bias.by_temperature[t]:.4f}" for t in temperatures) + " |")
    return "\n".join(lines) + "\n"


def measured(table: dict[str, Any]) -> Iterator[str]:
    """Yield what was measured: an overview a temperature in the literature's layout, the verdicts, the details."""
    made = table["provenance"]
    sizes = ", ".join(f"{one['file']} {one['bytes'] / 1e6:.1f} MB (`{one['sha256'][:12]}`)" for one in made["models"])
    versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
    yield (
        f"Measured by `{made['command']}` on {made['date']}: {sizes}; {versions}; {made['options']['threads']} thread, "
        f"{made['options']['openings']} openings of {made['options']['tokens']} tokens, default filters. Of every "
        "two passes that measure plain decoding, one is left out. No counted pass is cut short by an answer's end.\n"
    )
    for later in made.get("later", ()):
        yield f"The rows of {', '.join(f'`{name}`' for name in later['methods'])} were measured on {later['date']}.\n"
    if made.get("note"):
        yield f"{made['note']}\n"
    budgets = made["options"]["budgets"]
    for temperature in made["options"]["temperatures"]:
        yield f"### T = {temperature:g}: milliseconds a token, in brackets accepted tokens per verification\n"
        yield layout([row for row in table["rows"] if row["temperature"] == temperature], budgets)
    yield "### Against the chain of as many nodes\n"
    yield from verdicts(table)
    yield "### In detail\n"
    yield details(table["rows"])


def layout(rows: list[dict[str, Any]], budgets: list[int]) -> str:
    """Return one row a choice, one column a budget."""
    lines = ["| draft | " + " | ".join(f"{budget} nodes" for budget in budgets) + " |", "|---|" + "---|" * len(budgets)]
    for choice in dict.fromkeys(row["choice"] for row in rows):
        found = {row["budget"]: row for row in rows if row["choice"] == choice}
        cells = [brief(found.get(budget, found.get(0))) for budget in budgets]
        lines.append(f"| `{choice}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def brief(row: dict[str, Any] | None) -> str:
    """Return a cell: "0.31 (2.40)", or why it is empty."""
    if row is None:
        return "–"
    if row["skipped"]:
        return str(row["skipped"])
    return f"{row['ms_per_token']:.2f} ({row['accepted_per_pass']:.2f})"


def verdicts(table: dict[str, Any]) -> Iterator[str]:
    """Yield which policies accept more than the chain."""
    temperature = max(table["provenance"]["options"]["temperatures"])
    yield (
        f"At T = {temperature:g}, under the same kind of rule: joint rejection, `traversal` on trees and `block` on "
        "chains; rejection token by token, `tree` and `token`; `coupled`. In brackets the 95 % interval of the "
        f"difference, by resampling answers ({table['provenance']['options']['repeats']} to each opening) and the "
        "passes of each.\n"
    )
    for rule, budget in dict.fromkeys((one["rule"], one["budget"]) for one in table["against_chain"]):
        found = [one for one in table["against_chain"] if (one["rule"], one["budget"]) == (rule, budget)]
        better = [one for one in found if one["low"] > 0.0]
        names = ", ".join(
            f"`{one['tree']}` {one['difference']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f})"
            for one in sorted(better, key=lambda one: -one["difference"])
        )
        others = ", ".join(f"`{one['tree']}`" for one in found if one not in better)
        yield (
            f"- **{budget} nodes, {rule}**: more accepted a pass than by the chain: {names or 'none'}."
            + (f" Not shown for {others}." if others else "")
        )
    yield ""


def details(rows: list[dict[str, Any]]) -> str:
    """Return every figure."""
    lines = [
        "| T | draft | as typed | nodes | rule | tokens a pass | accepted a pass (95 %) | draft ms | verify ms |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        head = f"| {row['temperature']:g} | `{row['choice']}` | `{row['typed']}` | {row['nodes']} "
        if row["skipped"]:
            lines.append(f"{head}| | {cell(row['skipped'])} | | | |")
            continue
        low, high = row["interval"]
        lines.append(
            f"{head}| {row['verify']} | {row['tokens_per_pass']:.2f} | {row['accepted_per_pass']:.2f} ({low:.2f} to "
            f"{high:.2f}) | {row['draft_ms']:.2f} | {row['verify_ms']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def papers(one: MethodFacts) -> str:
    """Return links."""
    return ", ".join(f"[{paper}](https://arxiv.org/abs/{paper})" for paper in one.papers)


def cell(text: str) -> str:
    """Return text that a table's cell can hold."""
    return text.replace("|", "\\|")
