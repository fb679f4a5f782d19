#!/usr/bin/env bash
# llguidance 1.9.1: bounds of integers beyond 2^53 are rounded, so that a number passes which the schema forbids.
#
# Guessed: {"type": "integer", "maximum": N} allows N and no integer above it, as every bound below 2^53 does.
# Seen: the bound is held as a float of 64 bits, and integers up to the float that is nearest pass.
#
#   maximum 2^53 + 3: 2^53 + 4 passes     minimum 2^53 + 1: 2^53 passes     maximum 2^53 - 1: 2^53 is refused
#
# Keep bounds within 2^53, or check the number again once the text is there.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llguidance==1.9.1
"$folder/venv/bin/python" - <<'PYTHON'
import json

from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")
EXACT = 2**53


def takes(bound, value, number):
    schema = json.dumps({"type": "integer", bound: value})
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
    assert not matcher.is_error(), matcher.get_error()
    tokens = [*tokenizer.tokenize_str(str(number)), tokenizer.eos_token]
    return matcher.validate_tokens(tokens) == len(tokens)


assert takes("maximum", EXACT - 1, EXACT - 1) and not takes("maximum", EXACT - 1, EXACT), "below 2^53 bounds hold"
above, below = takes("maximum", EXACT + 3, EXACT + 4), takes("minimum", EXACT + 1, EXACT)
print("maximum 2^53 + 3 takes 2^53 + 4:", above, " minimum 2^53 + 1 takes 2^53:", below)
assert above and below, "behaviour changed: bounds beyond 2^53 hold"
print("llguidance 1.9.1: as described")
PYTHON
