"""Jobs of a loaded pair that are no answers.

Its target judges the drafts of edges: `remote.verifier`, with the parts that a loaded pair has. The start of a prompt
is read before it is sent, while nobody waits; nothing of that is written to disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from localspec.engine import events
from localspec.engine.context import Vocabulary
from localspec.engine.event_stream import peak_memory
from localspec.engine.sampling import Sampler
from localspec.engine.text import Marks, common_prefix
from localspec.errors import UsageError
from localspec.prompt.prompt import Tokenised, tokenise
from localspec.remote.messages import Hello, Prefix, Verify, encode, request_of
from localspec.remote.verifier import Served, VerifyingSessions
from localspec.session.loaded_pair import LoadedPair
from localspec.session.prompt_states import MIN_TOKENS
from localspec.settings.jobs import VerifyRound
from localspec.settings.request import FORMS, Request
from localspec.speculation.capabilities import require_tokens


class Verifying:
    """The sessions of edges, over one pair."""

    def __init__(self, pair: LoadedPair) -> None:
        self._pair = pair
        self._verifier = VerifyingSessions(self._served, clock=pair.clock, peak=peak_memory)

    def answer(self, round: VerifyRound) -> dict[str, Any]:
        """Return the reply to a round, as hexadecimal digits. Raises Cancelled, MessageError for what is no message."""
        hello, verify = request_of(round.hello), request_of(round.verify)
        prefixes = [each for each in map(request_of, round.prefixes) if isinstance(each, Prefix)]
        assert isinstance(hello, Hello)
        assert isinstance(verify, Verify)
        reply = self._verifier.answer(round.session, hello, prefixes, verify, self._pair.cancel)
        return {"reply": encode(reply).hex()}

    def _served(self, hello: Hello) -> Served:
        """Return what judges a session. Raises UsageError for what cannot be obeyed."""
        pair, sampling = self._pair, hello.sampling
        require_tokens(sampling, pair.target.model.n_vocab)
        constraint = None
        if hello.form is not None:
            kind, text = hello.form
            if kind not in FORMS:
                raise UsageError(f"a verifier keeps no form called {kind}", hint=f"one of {', '.join(FORMS)}")
            changed: dict[str, Any] = {kind: text}
            marks = None if hello.marks is None else Marks(*hello.marks)
            prompt = Tokenised([0] * hello.prompt_n, marks=marks)
            constraint = pair.grammars.apart(replace(Request(), **changed), pair.target.model, prompt)
        sampler = Sampler(sampling, breakers=pair.breakers(sampling), constraint=constraint)
        vocabulary = Vocabulary(pair.target.model.is_eog, pair.target.model.piece)

        def recall(tokens: Sequence[int]) -> None:
            for _ in pair.states.begin(Request(), [pair.target], tokens):
                pass  # a warning of a file: none is read here

        return Served(pair.target.backend, sampler, vocabulary, recall)


ENDS = (" and", "\n\n# So")  # the message may go on in either way
UNSURE = 2  # tokens before its end: what follows may change how they are cut


def read_ahead(request: Request, pair: LoadedPair) -> Iterator[events.Event]:
    """Evaluate what `request` begins with, however its last message goes on; ends after Finished.

    Raises Cancelled once somebody asks for anything: what was read until then stays.
    """
    began, backend = pair.clock(), pair.target.backend
    *before, last = request.messages
    ends = [replace(request, messages=(*before, replace(last, content=last.content + end))) for end in ENDS]
    tokens, other = (tokenise(each, pair.target.model, pair.target.specials).tokens for each in ends)
    n = common_prefix(tokens, other) - UNSURE
    if backend.options.reproducible:  # rows of other chunks are other bits
        n -= n % backend.options.n_batch
    if MIN_TOKENS <= n < pair.n_ctx:
        yield from pair.states.begin(request, [pair.target], tokens[: n + 1])
        cached = backend.cached(tokens[: n + 1])
        if n - cached >= MIN_TOKENS:
            backend.prefill(tokens[:n], pair.cancel)
            draft = pair.draft
            if draft is not None and draft.kind == "model" and pair.translation is None and draft.backend.length:
                draft.backend.prefill(tokens[: min(n, draft.backend.capabilities.n_ctx)], pair.cancel)
            yield events.Prefilled(n, cached, 1e3 * (pair.clock() - began))
    yield events.Finished("stop", "", 1e3 * (pair.clock() - began), 0.0, 0)
