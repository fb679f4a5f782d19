#!/usr/bin/env bash
# llguidance 1.9.1: an end token that is consumed where nothing else can follow is not counted by rollback.
#
# Guessed: after consuming n tokens, the end token among them, rollback(k) takes back the last k of them.
# Seen: the matcher takes the end token and returns True, but rollback(1) then takes back the token before it. No error
# is reported. Where the text may end or go on, the end token is refused or counted as usual, so this case stands alone.
#
#   grammar: regex "true"; consumed: t r u e END; rollback(1)
#   expected forced token: none or END     seen: "e"
#
# Who drafts tokens under a grammar and takes the rejected ones back loses one real token for each draft that ends so.
# Do not consume the end token once is_stopped() is true.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llguidance==1.9.1
"$folder/venv/bin/python" - <<'PYTHON'
from llguidance import LLMatcher, LLTokenizer

tokenizer = LLTokenizer("byte")
text = tokenizer.tokenize_str("true")


def matcher():
    made = LLMatcher(tokenizer, LLMatcher.grammar_from_regex("true"))
    assert made.consume_tokens(text) and made.is_stopped() and not made.is_error()
    return made


without = matcher()
assert without.rollback(1)
assert without.compute_ff_tokens() == text[3:], "one token was taken back: the last letter is forced again"

with_end = matcher()
assert with_end.consume_token(tokenizer.eos_token), "the stopped matcher takes the end token"
assert with_end.rollback(1) and not with_end.is_error(), "and takes back one token without an error"
forced = with_end.compute_ff_tokens()
print("after t r u e END and rollback(1) the forced tokens are", [chr(token) for token in forced])
assert forced == text[3:], "behaviour changed: the end token is counted now"
print("llguidance 1.9.1: as described")
PYTHON
