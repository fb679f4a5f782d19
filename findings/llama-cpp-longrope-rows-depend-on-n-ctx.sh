#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), models with LongRoPE (two sets of rope factors, as Phi-3 128k has): the logits of a
# short prompt depend on n_ctx, and a saved sequence state is accepted where it is wrong.
#
# Guessed: the factors follow the length of the text, and n_ctx is only how much fits.
# Seen, a random model with an original context of 256, a prompt of 40 tokens against the same with n_ctx = 256:
#
#   n_ctx 64:                    same bits
#   n_ctx 512 or 1024:           off by 0.65 (the logits' deviation is 1)
#   n_ctx 512, two sequences:    same bits, since each has 256
#   the state saved at n_ctx 256, set at n_ctx 512: accepted, and the next row is off by 1.00
#
# The factors are chosen once, by the cells of one sequence. So "a larger context, to be safe" changes answers, as does
# another number of parallel slots. Saved states need n_ctx and the number of sequences in their name.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6 # compiles for minutes
cd "$folder"
venv/bin/python - <<'PYTHON'
import ctypes

import gguf
import llama_cpp as llama
import numpy as np

HEADS, DIM, LAYERS, VOCAB, TRAINED = 4, 64, 2, 512, 256
WIDTH = HEADS * DIM
rng = np.random.default_rng(0)
writer = gguf.GGUFWriter("model.gguf", "llama")
writer.add_context_length(4096)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(2 * WIDTH)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(DIM)
writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
writer.add_rope_scaling_orig_ctx_len(TRAINED)
writer.add_tokenizer_model("no_vocab")
writer.add_vocab_size(VOCAB)


def matrix(name, *shape):
    writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32))


def norm(name, size):
    writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))


matrix("output", VOCAB, WIDTH)
norm("output_norm", WIDTH)
writer.add_tensor("token_embd.weight", rng.standard_normal((VOCAB, WIDTH)).astype(np.float32))
writer.add_tensor("rope_factors_short.weight", np.ones(DIM // 2, np.float32))
writer.add_tensor("rope_factors_long.weight", np.linspace(1, 16, DIM // 2, dtype=np.float32))
for layer in range(LAYERS):
    at = f"blk.{layer}."
    norm(at + "attn_norm", WIDTH)
    norm(at + "ffn_norm", WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(at + name, WIDTH, WIDTH)
    matrix(at + "ffn_gate", 2 * WIDTH, WIDTH)
    matrix(at + "ffn_up", 2 * WIDTH, WIDTH)
    matrix(at + "ffn_down", WIDTH, 2 * WIDTH)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()
model = llama.llama_model_load_from_file(b"model.gguf", llama.llama_model_default_params())


def context_of(n_ctx, sequences=1):
    """Return a context of `n_ctx` cells for so many sequences."""
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_seq_max, params.n_threads, params.n_threads_batch = n_ctx, sequences, 2, 2
    return llama.llama_init_from_model(model, params)


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


text = np.random.default_rng(1).integers(0, VOCAB, 40)
short = last_row(context_of(TRAINED), text)
gaps = {}
for n_ctx, sequences in ((64, 1), (512, 1), (1024, 1), (512, 2)):
    gaps[n_ctx, sequences] = float(abs(last_row(context_of(n_ctx, sequences), text) - short).max())
    print(f"n_ctx {n_ctx:4} for {sequences}: off by {gaps[n_ctx, sequences]:.2f}")
assert gaps[64, 1] == gaps[512, 2] == 0.0, "behaviour changed: short contexts differ"
assert min(gaps[512, 1], gaps[1024, 1]) > 0.1, "behaviour changed: long contexts do not differ"

saved, larger, fresh = context_of(TRAINED), context_of(512), context_of(512)
for context in (saved, fresh):
    last_row(context, text)
size = llama.llama_state_seq_get_size(saved, 0)
data = (ctypes.c_uint8 * size)()
assert llama.llama_state_seq_get_data(saved, data, size, 0) == size
is_taken = llama.llama_state_seq_set_data(larger, data, size, 0) == size
gap = float(abs(last_row(larger, [7], 40) - last_row(fresh, [7], 40)).max())
print(f"a state of n_ctx {TRAINED} at n_ctx 512: {'taken' if is_taken else 'refused'}, next row off by {gap:.2f}")
assert is_taken, "behaviour changed: the state is refused"
assert gap > 0.1, "behaviour changed: the state is right"
print("llama-cpp-python 0.3.36: as described")
PYTHON
