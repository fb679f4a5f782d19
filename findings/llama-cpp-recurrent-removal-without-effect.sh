#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), recurrent models: llama_memory_seq_rm grants to remove the start or the middle of a
# text, and removes nothing.
#
# Guessed: a state cannot forget a part of its text, so the function returns false, as it does for the end of the text.
# Seen, a random mamba2 model that has read 20 tokens, then the row of the next token:
#
#   positions 0 to 9, 5 to 9, 0 to 18:   returns true, and the row has the bits of the whole text
#   positions 15 to 19:                  returns false
#
# Programs that make room by removing old tokens get no error, and the model still has them. Ask for the whole
# sequence, or read the shorter text anew.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6 # compiles for minutes
cd "$folder"
venv/bin/python - <<'PYTHON'
import gguf
import llama_cpp as llama
import numpy as np

WIDTH, STATE, GROUPS, HEADS, CONV, LAYERS, VOCAB = 128, 32, 1, 4, 4, 2, 512
INNER = 2 * WIDTH
MIXED = INNER + 2 * GROUPS * STATE
rng = np.random.default_rng(0)
writer = gguf.GGUFWriter("model.gguf", "mamba2")
writer.add_context_length(4096)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(0)
writer.add_head_count(0)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_ssm_conv_kernel(CONV)
writer.add_ssm_inner_size(INNER)
writer.add_ssm_state_size(STATE)
writer.add_ssm_time_step_rank(HEADS)
writer.add_ssm_group_count(GROUPS)
writer.add_tokenizer_model("no_vocab")
writer.add_vocab_size(VOCAB)


def tensor(name, *shape, scale=1.0, mean=0.0):
    writer.add_tensor(name, (mean + scale * rng.standard_normal(shape)).astype(np.float32))


def matrix(name, *shape):
    tensor(f"{name}.weight", *shape, scale=shape[-1] ** -0.5)


matrix("output", VOCAB, WIDTH)
tensor("token_embd.weight", VOCAB, WIDTH)
tensor("output_norm.weight", WIDTH, scale=0.1, mean=1.0)
for layer in range(LAYERS):
    at = f"blk.{layer}."
    tensor(at + "attn_norm.weight", WIDTH, scale=0.1, mean=1.0)
    matrix(at + "ssm_in", INNER + MIXED + HEADS, WIDTH)
    tensor(at + "ssm_conv1d.weight", MIXED, CONV, scale=0.5)
    tensor(at + "ssm_conv1d.bias", MIXED, scale=0.1)
    tensor(at + "ssm_dt.bias", HEADS, scale=0.5, mean=-1.0)
    writer.add_tensor(at + "ssm_a", (-np.abs(rng.standard_normal((HEADS, 1))) - 0.1).astype(np.float32))
    tensor(at + "ssm_d", HEADS, 1, scale=0.1, mean=1.0)
    tensor(at + "ssm_norm.weight", GROUPS, INNER // GROUPS, scale=0.1, mean=1.0)
    matrix(at + "ssm_out", WIDTH, INNER)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()
model = llama.llama_model_load_from_file(b"model.gguf", llama.llama_model_default_params())


def last_row(context, tokens, start=0):
    """Evaluate tokens from position `start` on; return the logits of the last one."""
    n = len(tokens)
    batch = llama.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i] = int(token), start + i
        batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, i == n - 1
    assert llama.llama_decode(context, batch) == 0
    row = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, n - 1), (VOCAB,)).copy()
    llama.llama_batch_free(batch)
    return row


def after(first, end):
    """Read 20 tokens and remove those from `first` to `end`; return whether that was granted, and the next row."""
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 512, 2, 2
    context = llama.llama_init_from_model(model, params)
    last_row(context, text)
    is_granted = bool(llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, first, end))
    return is_granted, last_row(context, [7], 20)


text = np.random.default_rng(1).integers(0, VOCAB, 20)
_, whole = after(20, -1)  # nothing is removed
for first, end, is_granted in ((0, 10, True), (5, 10, True), (0, 19, True), (15, 20, False)):
    granted, row = after(first, end)
    same = np.array_equal(row, whole)
    print(f"positions {first} to {end - 1}: {'granted' if granted else 'refused'}, next row {'equal' if same else 'differs'}")
    assert granted is is_granted, "behaviour changed: another answer"
    assert same, "behaviour changed: the removal has an effect"
print("llama-cpp-python 0.3.36: as described")
PYTHON
