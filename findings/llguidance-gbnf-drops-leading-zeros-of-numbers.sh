#!/usr/bin/env bash
# llguidance 1.9.1: gbnf_to_lark drops the leading zeros of a character's number, and reads the letters behind as digits.
#
# Guessed: "\u0041BC" in GBNF, an A by its number and two letters, becomes a grammar of the text ABC, as in llama.cpp.
# Seen: it becomes a grammar of one character, U+41BC. Text ABC is refused, and the other character is allowed.
#
#   GBNF: root ::= "\u0041BC"     Lark: start: "\u41BC"     ABC: refused     U+41BC: taken
#
# Put characters in themselves before the translation, and no numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llguidance==1.9.1
"$folder/venv/bin/python" - <<'PYTHON'
from llguidance import LLMatcher, LLTokenizer, grammar_from
from llguidance.gbnf_to_lark import any_to_lark

tokenizer = LLTokenizer("byte")
lark = any_to_lark(r'root ::= "\u0041BC"')
print(lark.strip())


def takes(text):
    matcher = LLMatcher(tokenizer, grammar_from("lark", lark))
    assert not matcher.is_error(), matcher.get_error()
    tokens = tokenizer.tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens)


found = {text: takes(text) for text in ("ABC", "\u41bc")}
print(found)
assert found == {"ABC": False, "\u41bc": True}, "behaviour changed: the number has four digits now"
print("llguidance 1.9.1: as described")
PYTHON
