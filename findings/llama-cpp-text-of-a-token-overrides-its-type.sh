#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36): a token whose text is on a list in the library becomes a control token, and most
# end the answer, whatever type the file gives it. Only a line of the log tells.
#
# Guessed: `tokenizer.ggml.token_type` decides, so a user-defined token is text: found in a prompt, shown in an answer.
# Seen, a vocabulary with one user-defined token more, its text read without special tokens ("a", the text, "b"):
#
#   text       ends an answer   control   tokens of the prompt   shown as
#   <|note|>   no               no        3                      <|note|>
#   <MID>      no               yes       7                      nothing
#   <PAD>      yes              yes       7                      nothing
#   [EOS]      yes              yes       7                      nothing
#   <|end|>    yes              yes       9                      nothing
#
# The same holds for normal tokens. So an answer about such a mark stops in front of it, and a prompt that holds the mark
# is read in pieces that the model did not learn. Compare `llama_vocab_is_control` with the file's types.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 # compiles for minutes
cd "$folder"
venv/bin/python - <<'PYTHON'
import ctypes

import gguf
import llama_cpp as llama

Kind = gguf.TokenType
quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()


def vocabulary(text, kind):
    """Return llama.cpp's vocabulary of bytes, a few letters and `text`, and the number of that token."""
    tokens = [("<unk>", Kind.UNKNOWN), ("<s>", Kind.CONTROL), ("</s>", Kind.CONTROL)]
    tokens += [(f"<0x{byte:02X}>", Kind.BYTE) for byte in range(256)]
    tokens += [("a", Kind.NORMAL), ("b", Kind.NORMAL), (text, kind)]
    writer = gguf.GGUFWriter("vocabulary.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([name for name, _ in tokens])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([each for _, each in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(b"vocabulary.gguf", params)
    return llama.llama_model_get_vocab(model), len(tokens) - 1


def seen(text, kind):
    """Return whether the token ends an answer and is a control token, its prompt's length and how it is shown."""
    words, token = vocabulary(text, kind)
    prompt = f"a{text}b".encode()
    found = (llama.llama_token * 64)()
    n = llama.llama_tokenize(words, prompt, len(prompt), found, len(found), False, False)
    shown = ctypes.create_string_buffer(64)
    size = llama.llama_token_to_piece(words, token, shown, len(shown), 0, False)
    return llama.llama_vocab_is_eog(words, token), llama.llama_vocab_is_control(words, token), n, shown.raw[:size].decode()


EXPECTED = {
    "<|note|>": (False, False, 3, "<|note|>"),
    "<MID>": (False, True, 7, ""),
    "<PAD>": (True, True, 7, ""),
    "[EOS]": (True, True, 7, ""),
    "<|end|>": (True, True, 9, ""),
}
for text, expected in EXPECTED.items():
    told = seen(text, Kind.USER_DEFINED)
    print(f"{text:9} ends an answer: {told[0]!s:5}  control: {told[1]!s:5}  tokens: {told[2]}  shown as: {told[3]!r}")
    assert told == expected, f"behaviour changed: {text} as a user-defined token"
    assert text == "<|note|>" or seen(text, Kind.NORMAL)[:2] == expected[:2], f"behaviour changed: {text} as a normal one"
print("llama-cpp-python 0.3.36: as described")
PYTHON
