"""An offer as a row of the picker, whether it would fit on this machine, and all that is known of it in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from textual.content import Content

from localspec.errors import LocalspecError
from localspec.models.available import AvailablePair
from localspec.models.candidates import look
from localspec.models.pair_check import check_pair
from localspec.models.store import PairRef
from localspec.sanitize import one_line, shortened
from localspec.settings.lone_jobs import MachineFacts
from localspec.settings.sizes import size
from localspec.worker.lone_jobs import ask

WHERE = {"here": "on this machine", "hub": "to be downloaded", "gone": "a file of it is gone"}
COLUMNS = {"pair": 26, "size": 9, "draft": 20, "fit": 3, "where": 5, "tested": 6, "licence": 14}
# By the screen's width: each column takes two cells more, the table three.
LEFT_OUT = ((100, ()), (84, ("licence",)), (76, ("licence", "tested")), (0, ("licence", "draft", "tested")))
BESIDE = 1.15  # of the weights: caches and buffers
MIN_DOWNLOAD = 200_000_000  # bytes of them


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Free bytes: main memory (None: not known) and those of the devices that take layers."""

    ram: int | None = None
    devices: tuple[int, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> FreeMemory:
        return cls(facts["ram"], tuple(device["free"] for device in facts["all"] if device["takes_layers"]))


def this_machine() -> FreeMemory:
    """Ask llama.cpp, in a process of its own, what there is; nothing is known where it does not answer."""
    try:
        return FreeMemory.of(ask(MachineFacts()))
    except LocalspecError:
        return FreeMemory()


def fit(n_bytes: int, memory: FreeMemory) -> tuple[str, str]:
    """Return whether models of so many bytes fit, as a mark and in words, by the sizes of their files alone."""
    if not n_bytes or memory.ram is None:
        return ("", "")
    needed = n_bytes * BESIDE + MIN_DOWNLOAD
    if any(needed <= free for free in memory.devices):
        return ("✓", "fits on a GPU")
    if needed <= memory.ram:
        return ("✓", "fits in main memory")
    if needed <= memory.ram + sum(memory.devices):
        return ("!", "fits on GPU and main memory together")
    return ("✗", "does not fit in the memory that is free")


def longest(names: Iterable[str]) -> int:
    return max((Content(one_line(name)).cell_length for name in names), default=0)


def columns_of(width: int, longest_pair: int, longest_draft: int = 0) -> dict[str, int]:
    """Return the columns that a screen of `width` cells has room for, with their widths. Names of pairs have
    `longest_pair` cells at most, those of drafts `longest_draft`: their columns take what room is left, as far as they
    need it."""
    hidden = next(names for least, names in LEFT_OUT if width >= least)
    columns = {name: cells for name, cells in COLUMNS.items() if name not in hidden}
    left = width - 3 - sum(cells + 2 for cells in columns.values())
    for name, needed in (("pair", longest_pair), ("draft", longest_draft)):
        more = max(0, min(left, needed - columns.get(name, needed)))
        columns |= {name: columns[name] + more} if more else {}
        left -= more
    return columns


def cells(
    offer: AvailablePair, memory: FreeMemory, columns: Mapping[str, int], *, is_broken: bool = False
) -> dict[str, Content]:
    about = "~" if offer.is_about else ""
    mark = "✗" if is_broken else fit(offer.bytes, memory)[0]
    style = {"✓": "$success", "!": "$warning", "✗": "$error"}.get(mark, "")
    return {
        "pair": Content(shortened(one_line(offer.name), columns["pair"])),
        "size": Content(f"{about}{_size(offer.bytes)}"),
        "draft": Content.styled(shortened(one_line(offer.draft), columns.get("draft", 0)), "$muted"),
        "fit": Content.styled(mark, style),
        "where": Content.styled("bad", "$error")
        if is_broken
        else Content("here")
        if offer.where == "here"
        else Content.styled(offer.where, "$error" if offer.where == "gone" else "$muted"),
        "tested": Content("yes" if offer.is_tested else ""),
        "licence": Content.styled(one_line(offer.license), "$muted"),
    }


def described(offer: AvailablePair, memory: FreeMemory, verdict: str, problem: str = "") -> Content:
    about = "about " if offer.is_about else ""
    first = [offer.ref, offer.quant, f"{about}{_size(offer.target_bytes)}" if offer.target_bytes else ""]
    if offer.draft:
        first.append(f"+ {offer.draft}" + (f", {about}{_size(offer.draft_bytes)}" if offer.draft_bytes else ""))
    second = [
        offer.origin,
        WHERE[offer.where],
        "" if problem else fit(offer.bytes, memory)[1],
        f"{offer.context} tokens" if offer.context else "",
        offer.license,
        "" if offer.is_tested else "not tested",
    ]
    lines = [" · ".join(filter(None, first)), " · ".join(filter(None, second))]
    rest = one_line(problem or " · ".join(filter(None, (verdict, offer.notes))))
    return Content.assemble(
        (one_line(lines[0]), "bold"),
        "\n",
        (one_line(lines[1]), "$muted"),
        (f"\n{rest}" if rest else "", "$error" if problem else ""),
    )


def compared(pair: PairRef) -> str:
    if pair.draft is None:
        return "no draft: only methods that copy or look ahead"
    report = check_pair(look(pair.target), look(pair.draft, may_be_head=True))
    if not report.fits:
        return f"the draft does not fit: {report.reasons[0]}"
    return "the draft fits" if report.overlap is None else f"the draft has another vocabulary: {report.overlap}"


def _size(n_bytes: int) -> str:
    return size(n_bytes) if n_bytes else "–"
