"""What of a conversation fits the context: the oldest turns are left out of a request, so that its answer has room.

The cut is of one request and depends on the conversation and the context alone, so nothing has to be remembered, or
taken back after an edit. It moves in steps of a quarter of the context: while a conversation grows by so much, its
requests begin with the same turn, and what is in the caches is not read anew.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from localspec.errors import PromptTooLongError
from localspec.prompt.prompt import Tokenised
from localspec.settings.request import Request

STEPS = 4  # of the context


def shortened(request: Request, n_ctx: int, tokenised: Callable[[Request], Tokenised]) -> Tokenised:
    """Return the prompt of `request`, without the oldest turns where all leave less room than the answer may need.

    That is its limit of tokens, a quarter of the context at most. The question is sent whatever room it leaves.
    """
    whole = tokenised(request)
    step = max(1, n_ctx // STEPS)
    missing = len(whole.tokens) + min(request.max_tokens or step, step) - n_ctx
    n_turns = sum(message.role == "assistant" for message in request.messages)
    if not request.shorten or missing <= 0 or not n_turns:
        return whole
    limit = len(whole.tokens) - step * -(-missing // step)

    def fits(n: int) -> bool:
        return len(tokenised(_without(request, n)).tokens) <= limit

    n = 1 + bisect_left(range(1, n_turns), True, key=fits)
    rest = tokenised(_without(request, n))
    what = "the oldest message and its answer" if n == 1 else f"the {n} oldest messages and their answers"
    return replace(rest, warnings=(*rest.warnings, f"the context is full: {what} are no longer sent"))


def too_long(n: int, n_ctx: int, trained: int) -> PromptTooLongError:
    """Return what to say of a prompt of `n` tokens that was not shortened; the model was made for `trained`."""
    fitting = 1 << (n + 100).bit_length()  # with room for an answer
    hint = f"--ctx {fitting}" if fitting <= trained else f"a shorter prompt: this model was made for {trained} tokens"
    return PromptTooLongError(f"the prompt has {n} tokens and the context holds {n_ctx}", hint=hint)


def _without(request: Request, n: int) -> Request:
    """Return `request` without its `n` oldest turns."""
    head = [message for message in request.messages[:1] if message.role == "system"]
    return replace(request, messages=(*head, *request.messages[len(head) + 2 * n :]))
