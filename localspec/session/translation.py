"""The translation between two loaded models of different vocabularies."""

from __future__ import annotations

from functools import partial

from localspec.engine.translation import Intersection, Lexicon
from localspec.session.loaded_model import LoadedModel


def translation(target: LoadedModel, draft: LoadedModel) -> Intersection:
    """Return the translation by the tokens that both models have."""
    return Intersection(_lexicon(target), _lexicon(draft))


def _lexicon(loaded: LoadedModel) -> Lexicon:
    """Return the tokens of a model: the texts of all from its header, special ones as llama.cpp finds them."""
    model, special = loaded.model, loaded.model.special
    specials: dict[int, bytes] = {}
    for text in loaded.specials:
        found = model.tokenize(text, parse_special=True)
        if len(found) == 1:
            specials[found[0]] = text.encode()
    return Lexicon(
        n_vocab=model.n_vocab,
        spellings={text: token for text, token in loaded.info.vocab.spellings.items() if token not in specials},
        specials=specials,
        ends=tuple(dict.fromkeys(token for token in (special.eot, special.eos) if token is not None)),
        bos=special.bos,
        add_bos=special.add_bos,
        tokenize=model.tokenize,
        piece=partial(model.piece, special=True),
    )
