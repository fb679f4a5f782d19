"""What is kept of a bench: rows, files, the state of an interrupted one, comparisons, figures. No model is needed."""

import dataclasses
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench import plots
from localspec.bench.compare import compare
from localspec.bench.measurement import Cell, Measurement
from localspec.bench.plots import draw
from localspec.bench.result import BenchResult, Hashes, read_result, rows
from localspec.bench.table import markdown, text
from localspec.errors import IncompatibleError, NotFoundError, UsageError

MODEL = {
    "path": "/m/t.gguf", "bytes": 10, "arch": "llama", "quant": "Q8_0", "n_params": 1, "n_vocab": 2, "n_layer": 1,
    "kv_bytes": 1000, "devices": ["CPU"], "sha256": "a" * 64,
}  # fmt: skip
PROVENANCE: dict[str, Any] = {
    "machine": {"system": "Linux", "arch": "x", "processor": "p", "cores": 2, "memory_bytes": 1, "python": "3"},
    "pair": {"name": "n", "target": MODEL, "draft": {**MODEL, "sha256": "b" * 64}},
    "versions": {"localspec": "0"},
    "n_ctx": 512,
    "threads": 2,
    "options": {"suite": "s", "suite_sha256": "c", "prompt_tokens": None, "raw": True, "n_prompts": 6,
                "max_tokens": 9, "repeats": 1},
}  # fmt: skip


NO_OPTIONS = (
    '{"schema": "localspec.bench/1", "provenance": {"pair": {"target": {"sha256": "a"}, "draft": null}},'
    ' "measurements": [], "is_complete": true}'
)


def one(prompt: int = 0, contender: str = "plain", rate: float = 100.0, **changes: Any) -> Measurement:
    """Return an answer of nine tokens at `rate` tokens a second."""
    drafts = contender != "plain"
    made = Measurement(
        cell=Cell(prompt, 0.0, contender, 0), seed=1, method="draft-model" if drafts else "plain", tree="chain",
        length="fixed", k=2 if drafts else 0, verify="block", reason="length", prompt_n=10, prefill_ms=5.0,
        ttft_ms=6.0, total_ms=100.0, tokens=9, decoded=8, decode_ms=8e3 / rate, passes=4 if drafts else 9,
        drafted=8 if drafts else 0, accepted=5 if drafts else 0, tested_per_pos=(4, 4) if drafts else (),
        accepted_per_pos=(3, 2) if drafts else (), reached_per_pos=(4, 3) if drafts else (), draft_ms=1.0,
        verify_ms=2.0, host_ms=0.5, peak_memory=1 << 20,
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def result(speedup: Callable[[int], float] = lambda prompt: 2.0, n: int = 6, **changes: Any) -> BenchResult:
    """Return a bench in which prompt i is `speedup(i)` times as fast with the draft."""
    plain = [one(i, rate=50.0 * (i + 1)) for i in range(n)]
    draft = [one(i, "draft-model:k=2", rate=50.0 * (i + 1) * speedup(i)) for i in range(n)]
    return dataclasses.replace(BenchResult(PROVENANCE, (*plain, *draft), is_complete=True), **changes)


def test_a_row_is_of_ratios_on_the_same_prompt() -> None:
    """Rates differ tenfold between prompts, the ratio never: it has no doubt, and the rate has."""
    plain, draft = result().rows
    assert draft.ratio is not None
    assert draft.ratio.median == pytest.approx(2.0)
    assert (draft.ratio.low, draft.ratio.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert draft.tok_per_s is not None
    assert draft.tok_per_s.low is not None
    assert draft.tok_per_s.low < draft.tok_per_s.median
    assert (draft.tokens_per_pass, draft.acceptance) == (9 / 4, 5 / 8)
    assert draft.verify_ms == pytest.approx(2.0 / 3), "the first of four passes is the prompt's, and told apart"
    assert (draft.tested_per_pos, draft.accepted_per_pos) == ((24, 24), (18, 12))
    assert plain.ratio is not None
    assert (plain.ratio.median, plain.ratio.low) == (1.0, None)


def test_the_rows_of_a_result_are_made_once() -> None:
    made = result()
    assert made.rows is made.rows
    assert dataclasses.replace(made, measurements=made.measurements[:6]).rows == made.rows[:1]


def test_answers_that_end_at_once_have_no_rate() -> None:
    short = one(decoded=0, decode_ms=0.0, reason="stop")
    (row,) = rows([short])
    assert (row.tok_per_s, row.ratio, row.n_stopped) == (None, None, 1)
    (row,) = rows([short, one(1)])
    assert row.tok_per_s is not None
    assert row.tok_per_s.n == 1


@given(st.floats(0.1, 1e6), st.integers(0, 99), st.floats(0, 2))
def test_a_measurement_survives_json(rate: float, prompt: int, temperature: float) -> None:
    made = one(prompt, "draft-model:k=2", rate, cell=Cell(prompt, temperature, "draft-model:k=2", 3))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Measurement) == made


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(result(row_costs=((1, 2.0), (4, 2.5))).to_wire()))
    assert read_result(path) == result(row_costs=((1, 2.0), (4, 2.5)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("[]", "is no result of localspec bench"),
        ('{"schema": "localspec.result/1"}', "is no result of localspec bench"),
        ('{"schema": "localspec.bench/1"}', "is a damaged result"),
        ('{"schema": "localspec.bench/1", "provenance": {}, "measurements": [], "is_complete": true}', "damaged"),
        (NO_OPTIONS, "damaged"),
        ('{"schema": "localspec.bench/1", "provenance": 5, "measurements": [{}], "is_complete": true}', "damaged"),
    ],
)
def test_files_that_are_no_result(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read_result(path)
    with pytest.raises(NotFoundError):
        read_result(tmp_path / "none.json")


@pytest.mark.parametrize("contender", ["plain", "draft-model:k=2"])
@pytest.mark.parametrize(
    ("ms", "words"), [("Infinity", "is not JSON"), ("NaN", "is not JSON"), ("1" + "0" * 400, "is a damaged result")]
)
def test_a_result_without_speed_is_refused(tmp_path: Path, contender: str, ms: str, words: str) -> None:
    """There is no ratio to an answer that took for ever."""
    wire = result().to_wire()
    for measurement in wire["measurements"]:
        if measurement["cell"]["contender"] == contender:
            measurement["decode_ms"] = "MS"
    path = tmp_path / "r.json"
    path.write_text(json.dumps(wire).replace('"MS"', ms))
    with pytest.raises(UsageError, match=words):
        read_result(path)


def test_tables_say_what_was_left_out() -> None:
    stopped = (*result().measurements, one(6, reason="stop"))
    shown = text(result(measurements=stopped, skipped=2, is_complete=False))
    for words in ("2.00 [2.00, 2.00]", "1 answer ended before", "2 prompts left out", "interrupted", "62%"):
        assert words in shown
    page = markdown(result(), "localspec bench it")
    assert page.startswith("`localspec bench it`")
    assert "sha256 aaaaaaaaaaaa" in page
    assert "75% 50%" in page


def with_devices(*names: str) -> dict[str, Any]:
    return {**PROVENANCE, "pair": {**PROVENANCE["pair"], "target": {**MODEL, "devices": list(names)}}}


def test_a_gpus_memory_is_said_to_be_left_out() -> None:
    """The resident size is the processor's."""
    made = result()
    assert "GPU" not in text(result(provenance=with_devices("BLAS", "CPU")))
    on_gpu = with_devices("CUDA0", "CPU")
    for provenance, words in ((PROVENANCE, "included: "), (on_gpu, "on a GPU left out")):
        said = text(dataclasses.replace(made, provenance=provenance))
        assert words in said
        assert ("GPU" in said) == (provenance is on_gpu)


def test_prompts_shorter_than_asked_are_told() -> None:
    """`--prompt-tokens` cuts, and cannot lengthen."""
    options = {**PROVENANCE["options"], "prompt_tokens": 11}
    made = result(n=2, provenance={**PROVENANCE, "options": options})
    longer = dataclasses.replace(made.measurements[0], prompt_n=11, cell=Cell(7, 0.0, "plain", 0))
    said = text(dataclasses.replace(made, measurements=(*made.measurements, longer)))
    assert "2 of 3 prompts have fewer than the 11 tokens asked for (from 10 on)" in said
    assert "tokens asked for" not in text(result())


def test_a_method_that_was_refused_is_told_and_kept(tmp_path: Path) -> None:
    made = result(refused=(("suffix", "it cannot be rolled back"),))
    assert "suffix was left out: it cannot be rolled back" in text(made)
    (tmp_path / "r.json").write_text(json.dumps(made.to_wire()))
    assert read_result(tmp_path / "r.json").refused == made.refused


def copying(**changes: Any) -> Measurement:
    """Return an answer for which `auto` drafted copies, without a draft model: nobody gave it a length."""
    return one(contender="auto", method="plain", length="auto", k=0, **changes)


def head(shown: str) -> list[str]:
    (line,) = [line for line in shown.splitlines() if line.startswith("| method")]
    return [name.strip() for name in line.split("|")[1:-1]]


def test_a_terminal_has_every_figure_within_its_width() -> None:
    """In blocks one below the other; of a long draft only the first positions are shown."""
    deep = {"tested_per_pos": (4,) * 12, "accepted_per_pos": (4,) * 12, "reached_per_pos": (4,) * 12}
    made = result(measurements=(*result().measurements, one(1, "auto", k=12, **deep)))
    shown = text(made)
    assert all(len(line) <= 80 for line in shown.splitlines()), shown
    for words in ("prompt tok/s", "2000", "rule", "block", "by position", " 75%  50%", "100% 100% …", "ttft p50/p95"):
        assert words in shown, words


def test_a_page_has_every_column() -> None:
    (cells,) = [line for line in markdown(result(), "it").splitlines() if line.startswith("| draft-model:k=2")]
    told = dict(zip(head(markdown(result(), "it")), [cell.strip() for cell in cells.split("|")[1:-1]], strict=True))
    assert (told["tree"], told["length"], told["k"], told["rule"]) == ("chain", "fixed", "2", "block")
    assert (told["peak memory"], told["answers"], told["by position"]) == ("1 MB", "6", "75% 50%")


def test_where_nothing_is_drafted_there_is_nothing_of_drafts() -> None:
    shown = text(result(measurements=(one(), one(1))))
    assert "rule" not in shown
    assert "by position" not in shown


def test_peak_memory_is_of_a_methods_own_answers() -> None:
    """The largest of them; a system that cannot tell is not taken for one without memory."""
    made = result(measurements=(one(peak_memory=9_000_000), one(1, peak_memory=5_000_000), copying(peak_memory=0)))
    assert [row.peak_memory for row in made.rows] == [9_000_000, 0]
    page = markdown(made, "it")
    assert "| 9 MB |" in page
    assert "peak resident memory while it answered, models included: 9 MB" in page
    assert "resident" not in text(result(measurements=(copying(peak_memory=0),)))


def test_copies_without_a_draft_model_are_drafts() -> None:
    (row,) = rows([copying()])
    assert (row.k, row.drafted, row.acceptance) == (0, 8, 5 / 8)
    page = markdown(result(measurements=(one(), copying())), "it")
    (line,) = [line for line in page.splitlines() if line.startswith("| auto")]
    assert "| block | 75% 50% | chain | auto | – |" in line


def test_comparing_pairs_the_prompts() -> None:
    """The second is half as fast on every prompt: a ratio of 0.5 without doubt, and what differs is told."""
    slower = tuple(dataclasses.replace(m, decode_ms=2 * m.decode_ms) for m in result().measurements)
    other = {**PROVENANCE, "threads": 1}
    made = compare(result(), result(measurements=slower, provenance=other))
    assert made.is_paired
    assert all(change.ratio is not None and change.ratio.median == pytest.approx(0.5) for change in made.changes)
    assert made.differences == (("threads", 2, 1),)
    assert "threads: 2 → 1" in made.text()
    (line,) = (line for line in made.text().splitlines() if "draft-model" in line)
    cells = re.split(r"  +", line.strip())
    assert cells[2] == "6"
    assert [float(cell.partition("×")[0].split()[0]) for cell in cells[3:]] == pytest.approx([0.5, 2.0, 2.0])
    assert json.loads(json.dumps(made.to_wire()))["differences"][0]["what"] == "threads"
    assert "interrupted" not in made.text()


def test_comparing_with_an_interrupted_one_says_so(tmp_path: Path) -> None:
    """Two prompts of six were measured: those are compared, and the reader is told how few."""
    few = tuple(m for m in result().measurements if m.cell.prompt < 2)
    made = compare(result(), result(measurements=few, is_complete=False))
    assert {change.n for change in made.changes} == {2}
    assert made.to_wire()["interrupted"] == ["second"]
    assert "the second was interrupted" in made.text()


def test_a_result_that_names_no_target_is_compared_with_nothing() -> None:
    nameless = {**PROVENANCE, "pair": {**PROVENANCE["pair"], "target": {**MODEL, "sha256": None}}}
    with pytest.raises(UsageError, match="no sha256"):
        compare(result(provenance=nameless), result(provenance=nameless))


def test_comparing_other_prompts_and_methods() -> None:
    options = {**PROVENANCE["options"], "suite_sha256": "d"}
    plain = tuple(m for m in result().measurements if m.cell.contender == "plain")
    made = compare(result(), result(measurements=plain, provenance={**PROVENANCE, "options": options}))
    assert not made.is_paired
    assert [change.contender for change in made.changes] == ["plain"]
    assert made.only_before == ("draft-model:k=2 T=0",)


@pytest.mark.parametrize("what", ["target", "draft"])
def test_results_of_other_models_are_refused(what: str) -> None:
    pair = {**PROVENANCE["pair"], what: {**MODEL, "sha256": "f" * 64}}
    with pytest.raises(IncompatibleError, match=f"different {what} models") as raised:
        compare(result(), result(provenance={**PROVENANCE, "pair": pair}))
    assert raised.value.exit_code == 6


def test_a_folder_that_cannot_be_written_is_said_and_no_error(tmp_path: Path) -> None:
    """A file where the folder should be, which stops the superuser as well."""
    (tmp_path / "file").write_text("")
    hashes = Hashes(tmp_path / "file" / "sha256.json")
    assert len(hashes.sha256(tmp_path / "file")) == 64
    assert hashes.reason


def test_hashes_are_of_the_content(tmp_path: Path) -> None:
    path, kept = tmp_path / "m", tmp_path / "kept.json"
    path.write_bytes(b"abc")
    first = Hashes(kept).sha256(path)
    assert first == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    told: list[float] = []
    assert Hashes(kept).sha256(path, told.append) == first
    assert told == []
    path.write_bytes(b"abcd")
    assert Hashes(kept).sha256(path) != first
    kept.write_text("no JSON")
    assert Hashes(kept).sha256(path, told.append)
    assert told[-1] == 1.0
    with pytest.raises(NotFoundError):
        Hashes(kept).sha256(tmp_path / "none")


def test_figures_have_copies_without_a_draft_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the depth they had, for nobody gave them a length."""
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []

    def kept(real: Callable[..., Any], values: Any, title: str) -> Any:
        drawn.append(values)
        return real(values, title)

    for name in ("acceptance", "tokens_per_pass"):
        monkeypatch.setattr(plots, name, partial(kept, getattr(plots, name)))
    draw(result(measurements=(one(), copying())), tmp_path)
    assert drawn == [{"auto": [0.75, 0.5]}, {"auto": [(2, 9 / 4)]}]


def test_a_line_of_sizes_is_of_one_contender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rules at one length are two lines, not two points above each other."""
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    real = plots.tokens_per_pass
    monkeypatch.setattr(plots, "tokens_per_pass", lambda sizes, title: (drawn.append(sizes), real(sizes, title))[1])
    names = ("draft-model:k=2", "draft-model:k=4", "draft-model:k=2:verify=token")
    ours = [one(0, name, k=4 if "k=4" in name else 2) for name in names]
    draw(result(measurements=(one(), *ours)), tmp_path)
    (sizes,) = drawn
    assert {name: [n for n, _ in points] for name, points in sizes.items()} == {
        "draft-model": [2, 4],
        "draft-model:verify=token": [2],
    }


def test_figures_are_written_in_both_formats(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = draw(result(row_costs=((1, 2.0), (4, 2.5), (2, 3.0))), tmp_path / "new")
    names = {path.name for path in files}
    stems = {"speedup-T0", "acceptance-T0", "tokens-per-pass-T0", "row-cost"}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    for path in files:
        head = path.read_bytes()[:200]
        assert head.startswith(b"\x89PNG") or b"<?xml" in head
