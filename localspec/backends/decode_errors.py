"""Errors of a decode, in words."""

from __future__ import annotations

from localspec.backends.lib import LOG
from localspec.errors import InternalError, LocalspecError, PromptTooLongError, ResourceError, tells_out_of_memory


def context_full(length: int, n_ctx: int, needed: int) -> ResourceError:
    """Return the error of a context in which `length` of `n_ctx` positions are taken and `needed` more are wanted."""
    return ResourceError(
        f"the context is full: {length} of {n_ctx} positions are taken and {needed} more are needed",
        hint="raise --ctx, or generate less",
        detail={"length": length, "n_ctx": n_ctx, "needed": needed},
    )


def decode_error(code: int, rows: int, length: int) -> LocalspecError:
    """Return the error of a decode of `rows` tokens after `length` others, to which llama.cpp gave `code`."""
    detail = {"code": code, "rows": rows, "length": length, "log": LOG.tail()}
    if tells_out_of_memory(LOG.tail()):
        return ResourceError(
            f"there is not enough memory to evaluate {rows} tokens: {LOG.reason()}",
            hint="--gpu N with fewer layers, a smaller --ctx, or --draft none",
            detail=detail,
        )
    return InternalError(f"llama.cpp failed to evaluate {rows} tokens (code {code}): {LOG.reason()}", detail=detail)


def too_long(n: int, n_ctx: int) -> PromptTooLongError:
    """Return the error of a prompt of `n` tokens for a context of `n_ctx`."""
    return PromptTooLongError(
        f"the prompt has {n} tokens and the context holds {n_ctx}",
        hint="shorten the prompt, or raise --ctx",
        detail={"n_tokens": n, "n_ctx": n_ctx},
    )
