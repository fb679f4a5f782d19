"""Which draft wins on machines that are not at hand: the real engine, recorded drafts, a simulated clock.

  low_bit.py TARGET.gguf --sibling DRAFT.gguf --work FOLDER       records how drafts guess
  replay_machines.py FOLDER                                       a 70B target with each of them, on each machine

The planner places target and draft by their sizes and by the machine's bandwidths, and so says what a pass takes. Then
the engine answers under `auto` and with fixed lengths. Target and draft are recordings: the target writes its recorded
text at temperature 0, and a draft guesses as it guessed there. A draft of the recorded family stands for the same kind
of draft of the 70B model: its size is that of the 70B's, its acceptance is the recorded one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from replay import BATCH, Answers, Clock, Priced, of_rows, speculation

from localspec.control.profile import Profile
from localspec.engine import events
from localspec.models.catalog import load_catalog
from localspec.models.low_bit import kinds, planned_copy
from localspec.models.names import HubName
from localspec.models.plan.estimate import estimate
from localspec.models.plan.machine import Machine, MachineDevice, Rates
from localspec.models.plan.memory_use import MemoryUse, pass_seconds
from localspec.models.plan.models import ModelPart, Models, placed
from localspec.models.plan.search import PlacementPlan, PlacementRequest, best
from localspec.session.controllers import PairController
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling

GB = 10**9
WIDEST = 17  # rows
FIRST, SPAN = 300, 3700  # ids of the bundled vocabulary that stand for recorded ones
CERTAIN = 20.0  # logit of the target's token, over those of all others


def rates(one: float, eight: float, sixteen: float) -> Rates:
    """Return rates of `one` GB/s, where passes of eight and sixteen rows take so many times as long."""
    points = ((1, one * GB), (8, one * GB / eight), (16, one * GB / sixteen))
    return Rates({"Q4_K": points, "Q2_K": points, "IQ2_XXS": points}, "given")


MACHINES = {
    "24 GB card, 936 GB/s, beside 60 GB/s": Machine(
        64 * GB, 8, (MachineDevice("GPU0", 24 * GB, rates(936, 1.1, 1.3)),), rates(60, 1.3, 2.0)
    ),
    "32 GB card, 1790 GB/s, beside 60 GB/s": Machine(
        64 * GB, 8, (MachineDevice("GPU0", 32 * GB, rates(1790, 1.1, 1.3)),), rates(60, 1.3, 2.0)
    ),
    "12 GB card, 360 GB/s, beside 60 GB/s": Machine(
        64 * GB, 8, (MachineDevice("GPU0", 12 * GB, rates(360, 1.1, 1.3)),), rates(60, 1.3, 2.0)
    ),
    "unified, 96 GB of 400 GB/s": Machine(
        96 * GB, 8, (MachineDevice("GPU0", 90 * GB, rates(400, 1.3, 1.8), is_unified=True),), rates(200, 1.3, 2.0)
    ),
}


class Recorded:
    """A backend of the bundled vocabulary whose rows were recorded. Behind a prompt of any tokens it has one text.

    `rows[i]` are the likeliest tokens and their logits at the text's token i; all others have `floor`. A row depends on
    its place alone: what follows a wrong token is dropped with it.
    """

    def __init__(self, inner: Any, rows: Sequence[tuple[np.ndarray, np.ndarray]], floor: float) -> None:
        self._inner, self._recorded, self._floor = inner, rows, floor
        self._tokens: list[int] = []
        self._depths: list[int] = []  # of open nodes
        self._prompt = 0
        self.evaluated = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def length(self) -> int:
        """Committed tokens."""
        return len(self._tokens)

    @property
    def tokens(self) -> Sequence[int]:
        """The committed tokens."""
        return self._tokens

    @property
    def to_replay(self) -> int:
        """None: it has no state."""
        return 0

    def begin(self, prompt: int) -> None:
        """Forget all; the recorded text follows a prompt of so many tokens."""
        self.truncate(0)
        self._prompt = prompt

    def cached(self, tokens: Sequence[int]) -> int:
        """Return how many of `tokens` are held; the last is always evaluated."""
        same = next((at for at, (a, b) in enumerate(zip(tokens, self._tokens, strict=False)) if a != b), None)
        most = min(len(tokens), len(self._tokens)) if same is None else same
        return min(most, len(tokens) - 1)

    def prefill(self, tokens: Sequence[int], *_: Any) -> Recorded:
        """Hold `tokens`."""
        self.evaluated += len(tokens) - self.cached(tokens)
        self._tokens, self._depths = [int(one) for one in tokens], []
        self._told = [len(self._tokens) - self._prompt]
        self._base = 0
        return self

    def extend(self, tokens: Sequence[int], parents: Sequence[int], outputs: Any = None) -> Recorded:
        """Open nodes."""
        self.evaluated += len(tokens)
        first = len(self._depths)
        self._open = getattr(self, "_open", []) if first else []
        for token, parent in zip(tokens, parents, strict=True):
            self._depths.append(1 if parent < 0 else self._depths[parent] + 1)
            self._open.append(int(token))
        self._told = [len(self._tokens) + depth - self._prompt for depth in self._depths]
        self._base = 0
        return self

    def logits(self, node: int) -> np.ndarray:
        """Return the row of a node, or after a prefill that of the last token."""
        row = np.full(self.capabilities.n_vocab, self._floor, np.float32)
        ids, values = self._recorded[min(self._told[node], len(self._recorded) - 1)]
        row[ids] = values
        return row

    def keep(self, nodes: Sequence[int]) -> None:
        """Commit nodes."""
        self._tokens += [self._open[node] for node in nodes]
        self._depths = []

    def truncate(self, length: int) -> None:
        """Forget tokens and nodes."""
        del self._tokens[length:]
        self._depths = []


@dataclass(frozen=True)
class Recording:
    """The target's text of all answers at temperature 0, one behind the other, and how each draft guessed there."""

    text: list[int]
    drafts: dict[str, list[list[tuple[int, float]]]]

    @staticmethod
    def read(folder: Path) -> Recording:
        """Read what low_bit.py kept."""
        kept = json.loads((folder / "texts.json").read_text())["done"]
        chosen = [at for at, one in enumerate(kept) if one["temperature"] == 0.0]
        text = [token for at in chosen for token in kept[at]["tokens"][kept[at]["first"] :]]
        drafts = {}
        for file in sorted(folder.glob("*.json")):
            found = json.loads(file.read_text())
            if "texts" in found:
                drafts[found["name"]] = [tops for at in chosen for tops in found["texts"][at]["tops"]]
        return Recording(text, drafts)

    def target(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the target's rows."""
        return [(np.array([_id(token)]), np.array([CERTAIN], np.float32)) for token in self.text]

    def draft(self, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return a draft's rows. Tokens that share an id here keep the likeliest one's."""
        rows = []
        for tops in self.drafts[name]:
            found: dict[int, float] = {}
            for token, prob in tops:
                found.setdefault(_id(token), math.log(max(prob, 1e-6)))
            rows.append((np.array(list(found)), np.array(list(found.values()), np.float32)))
        return rows


def _id(token: int) -> int:
    return FIRST + token * 7919 % SPAN


class Replay:
    """The engine with two recordings, at the prices of a plan."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        models = files("localspec.models.storyteller")
        pair = [str(models / f"{role}-q8_0.gguf") for role in ("target", "draft")]
        self._clock = Clock(0.02)
        run = events.Returning(load(LoadSettings(*pair, ctx=2048, threads=1), lambda: False, self._clock))
        list(run)
        self._loaded, self._recording, self._folder = run.result, recording, folder

    def speed(self, draft: str, rows: Sequence[float], guess: float, contender: str, n: int) -> float:
        """Return the speed of an answer over plain passes, of a draft one pass of which takes `guess` of these."""
        real, clock = self._loaded, self._clock
        request = Request(prompt="Once", max_tokens=n, sampling=Sampling(temperature=0.0), cold=True)
        prompt = len(real.target.model.tokenize(b"Once")) + real.target.model.special.add_bos
        target = Recorded(real.target.backend, self._recording.target(), 0.0)
        small = Recorded(real.draft.backend, self._recording.draft(draft), -12.0)
        for one in (target, small):
            one.begin(prompt)
        priced = Priced(target, clock, lambda n: of_rows(rows, n), len(rows))
        cheap = Priced(small, clock, lambda n: guess * max(1.0, n / BATCH), BATCH)
        file = self._folder / f"{len(list(self._folder.iterdir()))}.json"
        pair = replace(
            real,
            target=replace(real.target, backend=priced),
            draft=replace(real.draft, backend=cheap),
            controllers=PairController(Profile(file), clock),
        )
        answers = Answers()
        answers.add(pair, clock, replace(request, speculation=speculation(contender)))
        return answers.speeds[0]

    def close(self) -> None:
        """Free the models."""
        self._loaded.close()


def rows_of(machine: Machine, models: Models, plan: PlacementPlan) -> list[float]:
    """Return the seconds of the target's passes by rows, where the plan puts it."""
    read = MemoryUse(models.target, plan.context).reads(plan.target)
    return [pass_seconds(machine, models.target, read, n, is_paged=plan.is_paged) for n in range(1, WIDEST + 1)]


def rows_of_cpu(machine: Machine, target: ModelPart) -> float:
    """Return the seconds of a pass of one row of the target in main memory."""
    without = replace(machine, devices=())
    return rows_of(without, placed(target), best(without, placed(target), PlacementRequest(n_ctx=4096)))[0]


def part(name: str) -> ModelPart:
    """Return a model of the catalogue, about."""
    catalog = load_catalog()
    source = catalog.model(name) or catalog.draft(name)
    found = estimate(source, catalog) if isinstance(source, HubName) else None
    assert found is not None, "the catalogue has its size"
    return ModelPart(found.anatomy, found.model.context)


def pairs(target: ModelPart, sibling: ModelPart, recording: Recording) -> Iterator[tuple[str, str, Models]]:
    """Yield what can draft: its recording, what to call it, and its sizes."""
    n = len(target.anatomy.layers)
    for name in recording.drafts:
        if "bit" in name or "IQ2" in name or "mixed" in name:
            bits = next((one for one in ("3", "mixed") if one in name), "2")
            kind = "IQ2_XXS" if "IQ2" in name else kinds(bits)[0]
            yield name, f"copy, {name}", planned_copy(target, bits, kind, n // 8 if "cut" in name else 0)
        else:
            yield name, "small sibling", placed(target, sibling)


def lines(asked: argparse.Namespace) -> Iterator[str]:
    """Yield the tables."""
    recording = Recording.read(asked.folder)
    target, sibling = part(asked.target), part(asked.small)
    with TemporaryDirectory() as folder, closing(Replay(recording, Path(folder))) as replay:
        for title, machine in MACHINES.items():
            in_ram = rows_of_cpu(machine, target)
            alone = best(machine, placed(target), PlacementRequest(n_ctx=4096))
            plain = rows_of(machine, placed(target), alone)[0]
            where = alone.target.tell(target.anatomy)
            yield f"\n**{title}**: target alone on {where}: {1 / plain:.2f} tokens a second, in RAM {1 / in_ram:.2f}\n"
            yield "| draft | draft on | target on | 8 rows | a guess | auto | best fixed | of target alone |"
            yield "|---|---|---|---|---|---|---|---|"
            for record, name, models in pairs(target, sibling, recording):
                plan = best(machine, models, PlacementRequest(n_ctx=4096, needs_draft=True))
                if plan.draft is None:
                    yield f"| {name} | does not fit | | | | | | |"
                    continue
                seconds = rows_of(machine, models, plan)
                rows, guess = [one / seconds[0] for one in seconds], plan.guess / seconds[0]
                speeds = {one: replay.speed(record, rows, guess, one, asked.n) for one in asked.contenders}
                auto = speeds.pop("auto")
                k = max(speeds, key=lambda one: speeds[one])
                assert models.draft is not None
                yield (
                    f"| {name} | {plan.draft.tell(models.draft)} | {plan.target.tell(target.anatomy)} | {rows[7]:.2f} "
                    f"| {guess:.3f} | {auto / seconds[0]:.2f} | {speeds[k] / seconds[0]:.2f} ({k}) "
                    f"| {auto / seconds[0] * plain:.2f} |"
                )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what low_bit.py kept")
    parser.add_argument("--target", default="llama-3.3-70b")
    parser.add_argument("--small", default="llama-3.2-1b")
    parser.add_argument(
        "--contenders",
        type=lambda text: text.split(","),
        default="auto,4,8,16",
        help="auto, lengths, and trees with their nodes, as dyspec:16",
    )
    parser.add_argument("-n", type=int, default=256, help="tokens of the answer")
    for line in lines(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
