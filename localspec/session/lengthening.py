"""Longer contexts for a text that needs them, as far as model and memory allow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from localspec.errors import ResourceError
from localspec.prompt.truncate import fitting
from localspec.session.loaded_model import LoadedModel
from localspec.settings.request import Request

SHORT_DRAFT = "the draft model reads at most {} tokens: beyond them decoding is plain"


def lengthened(request: Request, n: int, target: LoadedModel, drafts: Sequence[LoadedModel]) -> tuple[str, ...]:
    """Let a target and its drafts hold a prompt of `n` tokens, and return what to say of it."""
    before = target.backend.capabilities.n_ctx
    n_ctx = fitting(request, n, before, target.info.n_ctx_train)
    while n_ctx > before:
        try:
            target.backend.lengthen(n_ctx)
            break
        except ResourceError:
            n_ctx //= 2
    if n_ctx <= before:
        return ()
    for draft in drafts:
        with suppress(ResourceError):  # beyond its context decoding is plain
            if draft.kind == "model":
                draft.backend.lengthen(max(draft.backend.capabilities.n_ctx, min(n_ctx, draft.info.n_ctx_train)))
    told = f"the context has {n_ctx} tokens from here on, since the text needs more than {before}"
    limit = drafts[0].backend.capabilities.n_ctx if drafts else n_ctx
    return (told,) if limit >= n_ctx else (told, SHORT_DRAFT.format(limit))
