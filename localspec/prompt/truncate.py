"""What of a conversation fits the context: turns are left out of a request, so that its answer has room.

A cut is deep and seldom: it leaves a third of the room, and holds while what follows fits. So the caches keep what is
sent again. An answer tells what was left out (`Started.left_out`), and the next request of its branch brings that.
A turn with an attached file is left out after all others: the questions are about it.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from localspec.errors import PromptTooLongError
from localspec.prompt.prompt import Tokenised
from localspec.sanitize import one_line
from localspec.settings.request import Message, Request

RESERVE = 4  # one part in so many of the context is free for the answer
BESIDE_FILES = 8  # the same where the conversation has attached files
LEFT = 3  # one part in so many of the room is left to the talk; half of it cost 1.4 to 1.9 times the reading
SHOWN = 40  # characters of a message that is named


def shortened(
    request: Request, whole: Tokenised, n_ctx: int, trained: int, tokenised: Callable[[Request], Tokenised]
) -> Tokenised:
    """Return the prompt of `request`, without the turns that leave less room than the answer may need. `whole` is the
    prompt with all of them. The question is sent whatever room it leaves. The model was made for `trained` tokens, so
    the advice names no more."""
    turns, room = _turns(request), n_ctx - reserve(request, n_ctx)
    if not request.shorten or not turns or len(whole.tokens) <= room:
        return whole
    before = [turn for turn in request.left_out if turn < len(turns)]
    files = [i for i, turn in enumerate(turns) if turn[0].files and i not in before]
    chatter = [i for i, turn in enumerate(turns) if not turn[0].files and i not in before]

    def size(n_files: int, n_chatter: int) -> int:
        return len(sent(n_files, n_chatter).tokens)

    def sent(n_files: int, n_chatter: int) -> Tokenised:
        left_out = (*before, *files[:n_files], *chatter[:n_chatter])
        return replace(tokenised(_without(request, left_out)), left_out=tuple(sorted(left_out)))

    if before and size(0, 0) <= room:
        return sent(0, 0)
    n_files = bisect_left(range(len(files)), True, key=lambda n: size(n, len(chatter)) <= room)
    fixed = size(n_files, len(chatter))
    limit = fixed + (room - fixed) // LEFT
    n_chatter = bisect_left(range(len(chatter)), True, key=lambda n: size(n_files, n) <= limit)
    rest = sent(n_files, n_chatter)
    if not n_files + n_chatter:
        return rest
    message = f"the context of {n_ctx} tokens is full: {_named(turns, rest.left_out)} no longer sent"
    return replace(rest, warnings=(*rest.warnings, message + _cure(request, len(whole.tokens), n_ctx, trained)))


def reserve(request: Request, n_ctx: int) -> int:
    has_files = any(message.files for message in request.messages)
    most = max(1, n_ctx // (BESIDE_FILES if has_files else RESERVE))
    return min(request.max_tokens or most, most)


def fitting(request: Request, n: int, n_ctx: int, trained: int) -> int:
    while n + reserve(request, n_ctx) > n_ctx and n_ctx < trained:
        n_ctx = min(2 * n_ctx, trained)
    return n_ctx


def too_long(n: int, n_ctx: int, trained: int) -> PromptTooLongError:
    longer = 1 << (n + 100).bit_length()  # with room for an answer
    hint = f"--ctx {longer}" if longer <= trained else f"a shorter prompt: this model was made for {trained} tokens"
    return PromptTooLongError(f"the prompt has {n} tokens and the context holds {n_ctx}", hint=hint)


def _turns(request: Request) -> list[Sequence[Message]]:
    talk = request.messages[_n_head(request) :]
    return [talk[i : i + 2] for i in range(0, len(talk) - 1, 2)]


def _n_head(request: Request) -> int:
    return sum(message.role == "system" for message in request.messages[:1])


def _without(request: Request, left_out: Sequence[int]) -> Request:
    remaining = [message for i, turn in enumerate(_turns(request)) if i not in set(left_out) for message in turn]
    return replace(request, messages=(*request.messages[: _n_head(request)], *remaining, request.messages[-1]))


def _named(turns: Sequence[Sequence[Message]], left_out: Sequence[int]) -> str:
    files = [one_line(name) or "the piped text" for i in left_out for name in turns[i][0].files]
    chatter = [turns[i][0] for i in left_out if not turns[i][0].files]
    parts = list(files)
    if chatter:
        words = one_line(chatter[-1].content[: 10 * SHOWN])
        words = words if len(words) <= SHOWN else f"{words[:SHOWN]}…"
        several = f"the {len(chatter)} oldest messages up to “{words}” and their answers"
        parts.append(f"“{words}” and its answer" if len(chatter) == 1 else several)
    return f"{' and '.join(parts)}{' are' if chatter or len(files) > 1 else ' is'}"


def _cure(request: Request, n: int, n_ctx: int, trained: int) -> str:
    longer = fitting(request, n, n_ctx, trained)
    return "" if longer == n_ctx else f"; --ctx {longer} sends more"
