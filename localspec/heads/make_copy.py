"""The way from a target to its copy in fewer bits: the importance matrix, then llama.cpp's quantiser.

It runs in a process of its own, since it needs llama.cpp, and tells its progress as JSON objects. The matrix is kept
while it grows, so a run that was ended goes on where it was. The copy is whole or not there.
"""

import hashlib
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from localspec.backends.batch import not_cancelled
from localspec.backends.importance import Importance, Matrix, WatchedModel
from localspec.backends.llama_cpp import LlamaBackend
from localspec.backends.options import LoadOptions
from localspec.backends.quantise import QuantiseRecipe, quantise, size_of
from localspec.backends.reported import reported
from localspec.engine.events import Returning
from localspec.errors import ResourceError
from localspec.models.derived_files import is_whole, new_file, only_writer, require_space
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.shards import read_model
from localspec.models.low_bit import KEY, other_types, path_for
from localspec.prompt.prompt import special_texts, tokenise
from localspec.sanitize import shown
from localspec.settings.lone_jobs import CopyOptions
from localspec.settings.request import Message, Request

Event = dict[str, Any]

LONGEST_TEXT = 512  # tokens of a text, its first
SAVED = 20.0  # seconds between two times that the matrix is kept
WHAT = "the low-bit copy"  # in messages
NO_MATRIX = "this build of llama.cpp does not tell the inputs of its weights: the copy is made without them"
_MARGIN = 2**20  # bytes beside the tensors


def make_copy(options: CopyOptions) -> Iterator[Event]:
    """Make a copy and write it; report the progress.

    Events have a `stage`: "matrix" with `tokens`, `of` and `seconds_left`; "quantising" with `share`; "done" with
    `path`, `kind`, `bytes`, `target_bytes`, `has_matrix`, `seconds` and `warning`, "" for none.
    """
    began = time.monotonic()
    target = Path(options.target)
    mark = file_fingerprint(target)
    matrix: Matrix = {}
    if options.tokens:
        read = hashlib.sha256(repr((options.prompts, options.raw)).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        matrix = yield from _gathered(options, Path(options.folder) / f"{mark}-{options.tokens}-{read}.npz")
    header = read_model(target)
    whole = header.number(f"{header.architecture}.block_count")
    layers = whole - len(options.dropped)
    origin = {
        "target": mark,
        "kind": options.kind,
        "layers": f"{layers} of {whole}",
        "matrix": "yes" if matrix else "no",
        "pays": "yes" if options.pays else "no",
    }
    recipe = QuantiseRecipe(
        options.kind,
        other_types(options.bits, layers),
        options.dropped,
        {KEY + name: text for name, text in origin.items()},
        options.threads or 0,
    )
    path = Path(options.output) if options.output else path_for(target, options.bits, len(options.dropped))
    yield from _written(target, path, recipe, matrix)
    yield {
        "stage": "done",
        "path": str(path),
        "kind": options.kind,
        "bytes": path.stat().st_size,
        "target_bytes": header.size,
        "has_matrix": bool(matrix),
        "seconds": time.monotonic() - began,
        "warning": NO_MATRIX if options.tokens and not matrix else "",
    }


def _gathered(options: CopyOptions, file: Path) -> Generator[Event, None, Matrix]:
    """Let the target read the texts; return the matrix, an empty one where llama.cpp does not tell the inputs."""
    importance = Importance()
    done = importance.load(file)
    if done >= options.tokens:
        return importance.matrix()
    loading = LoadOptions(n_ctx=LONGEST_TEXT, threads=options.threads, gpu=options.gpu, repack=False)
    with WatchedModel(options.target, loading, importance) as model, LlamaBackend(model, loading) as backend:
        specials = special_texts(model)
        asked = [Request(messages=(Message("user", prompt),)) for prompt in options.prompts]
        asked += [Request(prompt=text) for text in options.raw]
        order = np.random.default_rng(0).permutation(len(asked))
        texts = [tokenise(asked[at], model, specials).tokens[:LONGEST_TEXT] for at in order]
        of = min(options.tokens, sum(map(len, texts)))
        began, at_first, read, saved = time.monotonic(), done, 0, time.monotonic()
        for tokens in texts:
            read += len(tokens)
            if read <= done:
                continue  # an earlier run read it
            if done >= of:
                break
            with importance.counting():
                _read(backend, tokens)
            if not importance.is_known:
                return {}
            done = read
            left = (time.monotonic() - began) / (done - at_first) * max(0, of - done)
            yield {"stage": "matrix", "tokens": min(done, of), "of": of, "seconds_left": left}
            if time.monotonic() - saved > SAVED:
                importance.save(file, done)
                saved = time.monotonic()
    importance.save(file, max(done, options.tokens))
    return importance.matrix()


def _read(backend: LlamaBackend, tokens: Sequence[int]) -> None:
    """Let a text pass through the model with a row of logits for each token: else its last layer saw the last alone."""
    backend.truncate(0)
    most = backend.capabilities.max_rows
    if most < 2:
        backend.prefill(tokens, not_cancelled)
        return
    for at in range(0, len(tokens), most):
        chunk = tokens[at : at + most]
        backend.extend(chunk, range(-1, len(chunk) - 1))
        backend.keep(tuple(range(len(chunk))))


def _written(target: Path, path: Path, recipe: QuantiseRecipe, matrix: Matrix) -> Generator[Event, None, None]:
    needed = size_of(target, recipe, matrix)
    if needed is None:
        raise _refused(target, path)
    with only_writer(path.parent, WHAT):
        require_space(path.parent, needed + _MARGIN, "the copy")
        with new_file(path, WHAT) as part:
            writing = Returning(reported(lambda report: quantise(target, part, recipe, matrix, report)))
            for share in writing:
                yield {"stage": "quantising", "share": share}
            if writing.result is None or not is_whole(part):
                raise _refused(target, path)


def _refused(target: Path, path: Path) -> ResourceError:
    from localspec.backends.lib import LOG

    return ResourceError(
        f"llama.cpp could not make a copy of {target.name} in {shown(path.parent)}: {LOG.reason()}",
        hint="check the space that is left there and quotas, or LOCALSPEC_HOME=FOLDER",
        detail={"log": LOG.tail()},
    )
