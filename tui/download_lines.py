"""A download in a few lines: what it asks, how far each file is, and how it ended."""

from __future__ import annotations

from textual.content import Content

from localspec.sanitize import sanitize
from localspec.settings.sizes import counted, duration, size
from localspec.tui.downloads import Download

BAR = 20  # cells
NAME = 28  # cells of a file's name, where there is room


def drawn(download: Download, width: int) -> Content:
    ref = sanitize(download.ref)
    match download.phase:
        case "asking":
            return Content.assemble((ref, "bold"), ": asking the hub · Esc cancels")
        case "planned":
            return _asked(download, ref)
        case "running":
            return Content("\n").join([_going(download, ref), *_files(download, width)])
        case "done":
            return Content.assemble(
                (ref, "bold"),
                (": on this machine, hashes correct", "$success"),
                " · Enter uses it",
                *_warnings(download),
            )
        case "cancelled":
            return Content.assemble((ref, "bold"), ": cancelled; the downloaded part is kept, Enter continues")
        case "failed":
            assert download.error is not None
            hint = f"\nTry: {sanitize(download.error.hint)}" if download.error.hint else ""
            return Content.assemble((ref, "bold"), ": ", (sanitize(download.error.message), "$error"), hint)


def _asked(download: Download, ref: str) -> Content:
    plan = download.plan
    assert plan is not None
    what = f"{size(plan.missing)} to download in {counted(len(plan.items), 'file')}, {size(plan.free)} free"
    return Content.assemble((ref, "bold"), f": {what}\n", ("Enter downloads · Esc cancels", "$accent"))


def _going(download: Download, ref: str) -> Content:
    rate, left = download.rate, download.total - download.bytes
    parts = [f"{size(download.bytes)} of {size(download.total)}"]
    if rate > 0:
        parts += [f"{rate / 1e6:.1f} MB/s", f"{duration(left / rate)} left"]
    return Content.assemble(
        (ref, "bold"), f": {' · '.join(parts)} · ", ("Ctrl+X cancels, Esc leaves it running", "$muted")
    )


def _warnings(download: Download) -> list[tuple[str, str]]:
    return [] if download.pull is None else [(f"\n{sanitize(line)}", "$warning") for line in download.pull.warnings]


def _files(download: Download, width: int) -> list[Content]:
    lines = []
    for file in download.files:
        share = file.bytes / file.item.file.size if file.item.file.size else 1.0
        filled = round(BAR * share)
        bar = "━" * filled, "─" * (BAR - filled)
        name = file.label(max(8, min(NAME, width - BAR - 20)))
        lines.append(
            Content.assemble(
                f"  {name.ljust(min(NAME, max(8, width - BAR - 20)))} ", (bar[0], "$primary"), (bar[1], "$muted"),
                f" {share:4.0%} ", (file.name, "$muted"),
            )
        )  # fmt: skip
    return lines
