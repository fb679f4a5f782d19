"""Which tokens two vocabularies share. Their headers tell it: those that write equal bytes in both."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from localspec.models.gguf.pieces import pieces
from localspec.models.gguf.vocab import Vocab

MIN_SHARED = 0.1  # of the target's tokens, for a draft that has others
MAX_TOKEN_BYTES = 64  # bytes of a token of the sample


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two vocabularies share `shared` tokens of the `n_target` that write something in the target's. `use` is the share
    of the shared ones among the tokens of a sample text (sample.txt), written in the target's, and `spelled` how many
    tokens the draft takes for one of these."""

    shared: int
    n_target: int
    use: float
    spelled: float = 1.0

    @property
    def share(self) -> float:
        return self.shared / max(1, self.n_target)

    @property
    def is_slight(self) -> bool:
        return self.share < MIN_SHARED

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % of the target's tokens, which write {100 * self.use:.0f} % of a sample text"


@lru_cache(maxsize=16)  # drafts of a family have the same vocabulary
def overlap(target: Vocab, draft: Vocab) -> Overlap:
    own = set(pieces(draft.type, draft.tokens, draft.types))
    shared = target.spellings.keys() & own
    written = list(_longest(_sample(), target.spellings))
    use = sum(piece in shared for piece in written) / len(written)
    spelled = sum(1 for _ in _longest(_sample(), own)) / len(written)
    return Overlap(len(shared), len(target.spellings), use, spelled)


@cache
def _sample() -> bytes:
    return files("localspec.models").joinpath("sample.txt").read_bytes()


def _longest(text: bytes, known: Collection[bytes]) -> Iterator[bytes]:
    """Yield `text` in the longest pieces that are known, single bytes where none is."""
    at = 0
    while at < len(text):
        ends = range(min(at + MAX_TOKEN_BYTES, len(text)), at + 1, -1)
        end = next((end for end in ends if text[at:end] in known), at + 1)
        yield text[at:end]
        at = end
