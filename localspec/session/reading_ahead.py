"""Reading the start of a prompt before it is sent, while nobody waits. Nothing of it is written to disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from localspec.engine import events
from localspec.engine.text import common_prefix
from localspec.prompt.prompt import tokenise
from localspec.session.loaded_pair import LoadedPair
from localspec.session.prompt_states import MIN_TOKENS
from localspec.settings.request import Request

ENDS = (" and", "\n\n# So")  # the message may go on in either way
UNSURE = 2  # tokens before its end: what follows may change how they are cut


def read_ahead(request: Request, pair: LoadedPair) -> Iterator[events.Event]:
    """Evaluate what `request` begins with, however its last message goes on; ends after Finished.

    Raises Cancelled once somebody asks for anything: what was read until then stays.
    """
    began, backend = pair.clock(), pair.target.backend
    *before, last = request.messages
    ends = [replace(request, messages=(*before, replace(last, content=last.content + end))) for end in ENDS]
    one, other = (tokenise(each, pair.target.model, pair.target.specials).tokens for each in ends)
    n = common_prefix(one, other) - UNSURE
    if backend.options.reproducible:  # rows of other chunks are other bits
        n -= n % backend.options.n_batch
    if MIN_TOKENS <= n < pair.n_ctx:
        yield from pair.states.begin(request, [pair.target], one[: n + 1])
        cached = backend.cached(one[: n + 1])
        if n - cached >= MIN_TOKENS:
            backend.prefill(one[:n], pair.cancel)
            draft = pair.draft
            if draft is not None and draft.kind == "model" and pair.translation is None and draft.backend.length:
                draft.backend.prefill(one[: min(n, draft.backend.capabilities.n_ctx)], pair.cancel)
            yield events.Prefilled(n, cached, 1e3 * (pair.clock() - began))
    yield events.Finished("stop", "", 1e3 * (pair.clock() - began), 0.0, 0)
