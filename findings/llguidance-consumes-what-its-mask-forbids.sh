#!/usr/bin/env bash
# llguidance 1.9.1: consume_token and validate_tokens accept tokens that the mask of the same state forbids.
#
# Guessed: a token is taken if and only if its bit in the mask is set.
# Seen: where text is forced, the mask allows only the token that the tokenizer would use for it. Other tokens that spell
# the same text are forbidden by the mask, and yet they are validated and consumed.
#
#   grammar: regex "true"; vocabulary: the bytes, "true", "tr", "ue"
#   mask: "true" alone     validate_tokens(["tr"]): 1     consume_token("tr"): True
#
# So a draft that is judged by validate_tokens is judged by another grammar than a sampler that uses the mask, and
# speculative sampling is no longer exact. Judge drafts by the mask.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llguidance==1.9.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

WORDS = [b"true", b"tr", b"ue"]


class Greedy:
    """Bytes, an end token and three words; text is cut into the longest words first."""

    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    tokens = [bytes([i]) for i in range(256)] + [b"<end>", *WORDS]

    def __call__(self, text):
        rest, ids = text.encode() if isinstance(text, str) else text, []
        while rest:
            word = next((word for word in WORDS if rest.startswith(word)), rest[:1])
            ids.append(self.tokens.index(word))
            rest = rest[len(word) :]
        return ids


tokenizer = LLTokenizer(TokenizerWrapper(Greedy()))
matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_regex("true"))
mask = allocate_token_bitmask(1, tokenizer.vocab_size)
fill_next_token_bitmask(matcher, mask)
bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: tokenizer.vocab_size]
allowed = [Greedy.tokens[i] for i in bits.nonzero()[0]]
part = Greedy.tokens.index(b"tr")
print("the mask allows", allowed, "and validate_tokens takes", matcher.validate_tokens([part]), 'token "tr"')
assert allowed == [b"true"], "behaviour changed: the mask allows other tokens"
assert matcher.validate_tokens([part]) == 1, "behaviour changed: validation follows the mask now"
assert matcher.consume_token(part) and not matcher.is_error(), "behaviour changed: consume_token follows the mask now"
print("llguidance 1.9.1: as described")
PYTHON
