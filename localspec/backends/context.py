"""Opening a llama.cpp context: its settings, whether the machine can hold it, and its threads.

A large model decodes with all cores and a tiny one with one thread. Between, both are measured.

Threads meet at a barrier after every operation. In a model of a few megabytes an operation takes microseconds, so the
barriers can cost more than the second core brings, and on a busy machine a thread that waits for its core stalls all:
a 5 MB model on two contended cores was seen at 7 tokens/s with two threads and at 2 800 with one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from localspec.backends.devices import devices
from localspec.backends.lib import BF16, KV_TYPES, LOG, api
from localspec.backends.limits import available_memory, physical_cores
from localspec.backends.memory import PAD, attention_for, check_context, rollback_for
from localspec.backends.model import Model
from localspec.backends.options import UNQUANTISED, LoadOptions
from localspec.backends.threads import attach_pool
from localspec.errors import ResourceError, UsageError
from localspec.tuning import DEFAULT_CTX, TINY_WEIGHTS

MAX_OUTPUTS = 128  # rows with logits in one decode: llama.cpp sets their buffer aside, 65 MB at 128 000 tokens
FLASH = {"auto": -1, "off": 0, "on": 1, "mixed": 1}


def context_size(model: Model, options: LoadOptions) -> int:
    """Return the positions of the context: as asked, or what the model was trained for up to a default."""
    return options.n_ctx or min(model.n_ctx_train or DEFAULT_CTX, DEFAULT_CTX)


def is_stretched(model: Model, n_ctx: int) -> bool:
    """Whether keys are turned by other factors in a context of `n_ctx` positions than in a short one.

    A model with longrope is, once its context is longer than it was in its first training.
    """
    name = f"{model.architecture}.rope.scaling"
    trained = int(model.metadata(f"{name}.original_context_length") or 0)
    is_steady = not trained or model.metadata(f"{name}.type") == "yarn"
    return not is_steady and -(-n_ctx // PAD) * PAD > trained


def fitting(model: Model, options: LoadOptions) -> LoadOptions:
    """Return the options with flash attention switched off where that is quicker and its scores fit in memory.

    Of a state there is as much rollback in place as memory holds.
    """
    n_ctx = context_size(model, options)
    options = attention_for(model.context_shape, n_ctx, options, has_gpu=model.n_gpu_layers != 0)
    if options.reproducible and _splits(model, options):
        options = replace(options, flash_attn="mixed")
    if not model.is_stateful:
        return replace(options, rollback=0)
    return rollback_for(model.context_shape, n_ctx, options, _available(model))


def kv_bytes(model: Model, options: LoadOptions) -> int:
    """Return the bytes of the KV cache; raises ResourceError where they and the buffers exceed the free memory."""
    if options.kv_type not in KV_TYPES:
        raise UsageError(f"there is no cache type {options.kv_type!r}", hint=f"{', '.join(KV_TYPES)}")
    if options.flash_attn == "off" and options.kv_type not in UNQUANTISED:
        raise UsageError(f"a {options.kv_type} cache needs flash attention", hint="--flash-attn auto, or --kv f16")
    n_ctx = context_size(model, options)
    return check_context(model.context_shape, n_ctx, options, _available(model), model.n_ctx_train)


def open_context(model: Model, options: LoadOptions, n_sequences: int) -> Any:
    LOG.clear()
    context = api.llama_init_from_model(model.handle, _params(model, options, n_sequences))
    if context is None:
        raise ResourceError(
            f"llama.cpp cannot make a context of {context_size(model, options)} tokens: {LOG.reason()}",
            hint="a smaller --ctx, or --kv f16",
            detail={"log": LOG.tail()},
        )
    attach_pool(context, max(api.llama_n_threads(context), api.llama_n_threads_batch(context)))
    model.adapt(context)
    return context


def _available(model: Model) -> int | None:
    """Return the bytes that a context can have, None where the system does not say."""
    available = available_memory()
    if available is not None and model.n_gpu_layers:
        # Where a GPU shares main memory, that is counted already.
        available += sum(device.free for device in devices() if device.is_gpu and not device.is_unified)
    return available


def _splits(model: Model, options: LoadOptions) -> bool:
    """Whether a row alone is attended to in another way than rows together, after the first 256 tokens.

    A processor's flash attention then gives each thread a part of the context, if keys and values have one type of
    floating point. It computes with F16 where the cache has F32.
    """
    return options.flash_attn == "on" and options.kv_type in UNQUANTISED and not model.n_gpu_layers


def _params(model: Model, options: LoadOptions, n_sequences: int) -> Any:
    params = api.llama_context_default_params()
    params.n_ctx = context_size(model, options) * options.lanes
    # One physical batch for one logical batch: an abort then drops all of a chunk or nothing.
    params.n_batch = params.n_ubatch = options.n_batch
    params.n_outputs_max = min(options.n_batch, MAX_OUTPUTS)
    params.n_seq_max = n_sequences
    params.n_rs_seq = options.rollback
    params.kv_unified = options.lanes == 1  # the leaves of a tree share cells; lanes have their own
    params.swa_full = True  # a window that forgets can neither roll back nor reuse a prefix
    params.n_threads = options.threads or physical_cores()
    params.n_threads_batch = options.threads_batch or params.n_threads
    params.type_k = params.type_v = KV_TYPES[options.kv_type]
    if options.flash_attn == "mixed":
        params.type_v = BF16
    params.flash_attn_type = FLASH[options.flash_attn]
    params.offload_kqv = model.n_gpu_layers != 0
    params.op_offload = options.gpu != "off"
    params.no_perf = True
    model.prepare_context(params)
    return params


SMALL_MODEL = 256 * 2**20  # beyond, a pass takes tens of milliseconds and barriers do not matter
TRIES = 5


def settle_threads(context: Any, n_bytes: int, decode: Callable[[], None]) -> int:
    """Set and return the context's thread count; `decode` evaluates one token and forgets it."""
    cores = physical_cores()
    if n_bytes < TINY_WEIGHTS:
        fastest = 1
    elif n_bytes > SMALL_MODEL or cores == 1:
        fastest = cores
    else:
        fastest = min((1, cores), key=lambda n: _time_threads(context, n, decode))
    api.llama_set_n_threads(context, fastest, fastest)
    return fastest


def _time_threads(context: Any, n_threads: int, decode: Callable[[], None]) -> float:
    """Return the median seconds of a pass: a count that is only sometimes fast is not fast."""
    api.llama_set_n_threads(context, n_threads, n_threads)
    seconds = []
    for _ in range(TRIES):
        began = time.perf_counter()
        decode()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[TRIES // 2]
