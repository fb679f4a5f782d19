"""Measures how much of each method and tree policy is accepted in a pass, on the bundled pair, for docs/methods.md.

  methods_table              measure all; write docs/methods-table.json and the page
  methods_table --quick      two openings, few tokens, two budgets, printed only
  methods_table --only NAME  measure the rows of some methods; the others stay as they are

Real llama.cpp through LoadedPair and Stats, one thread. Each draft is judged by the rule that --verify auto takes when
no seed is given; the seeds here are only for repeating it. Passes that probe plain decoding are left out, and answers
are left before their end could shorten a draft. Trees and chain are also compared under every kind of rule: joint
rejection, rejection token by token, coupled noise. Intervals are bootstrapped over answers and the passes of each.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import methods_page
import numpy as np
from methods_cells import BUDGETS, COMPARED, PAIR, TEMPERATURES, Choice, choices

import docs
from localspec.engine.events import Committed, Returning
from localspec.models.gguf.head import KINDS
from localspec.models.store import bundled_head
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling
from localspec.ui.stats import Stats

OPENINGS = (
    "Once upon a time there was a king who had",
    '"Come in," said the old woman, "and sit by the fire."',
    "The ship had been three days at sea when",
    "There was once a poor boy who",
    "The first thing he saw in the morning was",
    "Chapter One\n\nThe house stood at the end of",
    '"I don\'t believe it," said Alice,',
    "In the middle of the night the door",
)
REPEATS = 4  # answers to each opening there
RESAMPLES = 1000
AHEAD = 2 * max(BUDGETS)  # tokens an answer may still have when it is left, so that no draft is cut short


@dataclass
class Row:
    """A choice measured at one temperature; `answers` are the accepted tokens of every pass of each answer."""

    choice: Choice
    temperature: float
    stats: Stats = field(default_factory=Stats)
    answers: list[list[int]] = field(default_factory=list)

    def means(self) -> np.ndarray:
        """Return resampled means of accepted tokens a pass [R]; rows resample the same answers."""
        n = len(self.answers)
        chosen = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
        rng = np.random.default_rng(zlib.crc32(f"{self.choice.typed} {self.temperature}".encode()))
        sums, counts = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
        for number, answer in enumerate(self.answers):
            passes = np.array(answer)
            taken = (chosen == number).sum(1)  # how often each resample took it
            for again in range(int(taken.max())):
                drawn = passes[rng.integers(passes.size, size=(RESAMPLES, passes.size))].sum(1)
                sums += np.where(again < taken, drawn, 0)
                counts += np.where(again < taken, passes.size, 0)
        return sums / counts

    def to_wire(self) -> dict[str, Any]:
        """Return the row of the JSON file."""
        choice, stats = self.choice, self.stats
        wire: dict[str, Any] = {
            "choice": choice.name,
            "temperature": self.temperature,
            "budget": choice.budget,
            "typed": choice.typed,
            "nodes": 0 if choice.axes is None else choice.axes.shape.nodes,
            "skipped": choice.skipped,
        }
        if not self.answers:
            return wire
        assert choice.axes is not None
        return wire | {
            "verify": choice.axes.verify,
            "passes": stats.passes,
            "tokens_per_pass": _rounded(stats.emitted / stats.passes),
            "accepted_per_pass": _rounded(stats.accepted / stats.passes),
            "interval": _interval(self.means()),
            "ms_per_token": _rounded(stats.ms_per_token or 0.0),
            "draft_ms": _rounded(stats.draft_ms / stats.passes),
            "verify_ms": _rounded(stats.verify_ms / stats.passes),
        }


def measure(pair: LoadedPair, row: Row, prompt: str, n: int, seed: int) -> None:
    """Generate `n` tokens and take the passes that drafted, or could have, into the account."""
    assert row.choice.axes is not None
    speculation = replace(row.choice.speculation, verify=row.choice.axes.verify)  # with a seed, auto takes another
    sampling = Sampling(temperature=row.temperature, seed=seed)
    request = Request(prompt=prompt, max_tokens=n + AHEAD, speculation=speculation, sampling=sampling)
    answer: list[int] = []
    emitted = 0
    for event in pair.answer(request):
        if not isinstance(event, Committed):
            continue
        emitted += len(event.out)
        if event.index > 0 and not event.is_probe:
            row.stats.observe(event)
            answer.append(event.n_accepted)
        if emitted >= n:
            break
    if answer:
        row.answers.append(answer)


def against_chain(rows: list[Row]) -> list[dict[str, Any]]:
    """Compare the trees with the chain of as many nodes at the highest temperature, under each kind of rule.

    Joint rejection is `traversal` on trees, which on a chain is `block`; token by token it is `tree` and `token`.
    """
    found = []
    for rule, trees, chains in (
        ("joint", "traversal", "block"), ("token by token", "tree", "token"), ("coupled", "coupled", "coupled"),
    ):  # fmt: skip
        for budget in COMPARED:
            chain = _compared(rows, chains, budget).get("chain")
            for name, row in _compared(rows, trees, budget).items():
                if chain is not None and name != "chain":
                    low, high = _interval(row.means() - chain.means())
                    difference = row.stats.accepted / row.stats.passes - chain.stats.accepted / chain.stats.passes
                    found.append({"rule": rule, "budget": budget, "tree": name, "difference": _rounded(difference),
                                  "low": low, "high": high})  # fmt: skip
    return found


def _compared(rows: list[Row], rule: str, budget: int) -> dict[str, Row]:
    """Return the rows that stand against each other, by tree policy."""
    return {
        row.choice.speculation.tree.partition(":")[0]: row
        for row in rows
        if row.answers and row.choice.is_compared and row.choice.budget == budget
        if row.temperature == max(TEMPERATURES) and row.choice.axes and row.choice.axes.verify == rule
    }


def _interval(means: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(means, (2.5, 97.5))
    return _rounded(low), _rounded(high)


def _rounded(value: float) -> float:
    return round(float(value), 4)


def provenance(models: list[Path], options: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """Say what was measured, with what, and when."""
    sums = [
        {"file": model.name, "bytes": model.stat().st_size, "sha256": hashlib.sha256(model.read_bytes()).hexdigest()}
        for model in models
    ]
    date = time.strftime("%Y-%m-%d", time.gmtime())
    command = "./scripts/methods_table"
    return {"command": command, "date": date, "versions": versions, "models": sums, "options": options}


def copied(folder: Path) -> dict[str, Path]:
    """Copy target, draft and heads, so that files which are replaced meanwhile are not measured in halves."""
    pair = Path(str(files("localspec.models"))) / PAIR
    found = {role: pair / f"{role}-q8_0.gguf" for role in ("target", "draft")}
    found |= {kind: head for kind in KINDS if (head := bundled_head(PAIR, kind)) is not None}
    return {role: Path(shutil.copy2(path, folder)) for role, path in found.items()}


def run(
    models: dict[str, Path], budgets: tuple[int, ...], openings: tuple[str, ...], n: int, only: Collection[str] = ()
) -> dict[str, Any]:
    """Measure every choice, or those of the methods `only`, one after the other.

    `models` are the files by role, those of heads by their kind.
    """
    rows = [
        Row(choice, temperature)
        for temperature in TEMPERATURES
        for choice in choices(budgets, temperature)
        if not only or choice.speculation.method in only
    ]
    began = time.monotonic()
    for row in rows:
        if row.choice.skipped:
            continue
        draft = models.get(row.choice.speculation.method, models["draft"])
        settings = LoadSettings(str(models["target"]), str(draft), threads=1, gpu="off", draft_gpu="off")
        loading = Returning(load(settings, lambda: False))
        for event in loading:  # anew: the lessons of one row are no help for the next
            row.stats.observe(event)
        pair = loading.result
        repeats = REPEATS if row.choice.is_compared and row.temperature == max(TEMPERATURES) else 1
        for seed in range(repeats):
            for prompt in openings:
                measure(pair, row, prompt, n, seed)
        pair.close()
        print(f"{time.monotonic() - began:5.0f} s  T={row.temperature:g}  {row.choice.typed}", file=sys.stderr)
    loaded = next(row.stats.loaded for row in rows if row.stats.loaded is not None)
    options = {
        "openings": len(openings),
        "repeats": REPEATS,
        "tokens": n,
        "budgets": budgets,
        "temperatures": TEMPERATURES,
        "threads": loaded.threads,
        "sampling": asdict(Sampling()),
        "resamples": RESAMPLES,
    }
    made = provenance(list(models.values()), options, loaded.versions)
    return {"provenance": made, "rows": [row.to_wire() for row in rows], "against_chain": against_chain(rows)}


def merged(old: dict[str, Any], new: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Put the rows of some methods into a table that was measured before, and note when that was."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["choice"], row["temperature"], row["budget"]

    fresh = {place(row): row for row in new["rows"]}
    kept = [fresh.pop(place(row), row) for row in old["rows"]]
    made = old["provenance"]
    known = {one["file"]: one for one in (*made["models"], *new["provenance"]["models"])}
    later = [*made.get("later", ()), {"date": new["provenance"]["date"], "methods": list(methods)}]
    return {
        **old,
        "provenance": {**made, "models": list(known.values()), "later": later},
        "rows": [*kept, *fresh.values()],
    }


def main() -> None:
    """Measure and write, or with --quick print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of everything, printed and not written")
    parser.add_argument("--only", default="", help="methods, separated by commas, whose rows are measured again")
    parser.add_argument("-n", type=int, default=96, help="tokens of an answer")
    parser.add_argument("--note", default="", help="what a reader should know of the machine; stands on the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LOCALSPEC_HOME"] = folder  # a tuned early exit of this machine is not to be measured
        models = copied(Path(folder))
        only = options.only.split(",") if options.only else []
        sizes = ((4, 16), OPENINGS[:2], 12) if options.quick else (BUDGETS, OPENINGS, options.n)
        table = run(models, *sizes, only)
    if options.quick:
        print("\n".join(methods_page.measured(json.loads(json.dumps(table)))))
        return
    if only:
        table = merged(json.loads(methods_page.TABLE.read_text(encoding="utf-8")), table, only)
    else:
        table["provenance"]["note"] = options.note
    methods_page.TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    docs.main()


if __name__ == "__main__":
    main()
