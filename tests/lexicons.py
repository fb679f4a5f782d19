"""Vocabularies made by hand, with a tokenizer that takes the longest token that fits."""

from collections.abc import Sequence

from localspec.engine.translation import Lexicon


def lexicon(
    texts: Sequence[bytes],
    *,
    specials: dict[bytes, int] | None = None,
    ends: tuple[int, ...] = (),
    bos: int | None = None,
    adds_space: bool = False,
) -> Lexicon:
    """Return a vocabulary of `texts`, b"" for tokens without one; `specials` are ids behind or among them.

    `adds_space`: the tokenizer puts a space before each text, as SPM vocabularies do. A byte that no token writes is
    left out.
    """
    special = {token: text for text, token in (specials or {}).items()}
    spellings = {text: token for token, text in reversed([*enumerate(texts)]) if text and token not in special}
    longest = max(map(len, spellings), default=1)

    def tokenize(text: bytes) -> list[int]:
        found, at = [], 0
        text = b" " + text if adds_space and text else text
        while at < len(text):
            ends = range(min(at + longest, len(text)), at, -1)
            end = next((end for end in ends if text[at:end] in spellings), None)
            if end is not None:
                found.append(spellings[text[at:end]])
            at = end or at + 1
        return found

    return Lexicon(
        n_vocab=max(len(texts), *(token + 1 for token in (*special, 0))),
        spellings=spellings,
        specials=special,
        ends=ends,
        bos=bos,
        add_bos=bos is not None,
        tokenize=tokenize,
        piece=lambda token: special.get(token) or texts[token],
    )


BYTES = [bytes([byte]) for byte in range(256)]
