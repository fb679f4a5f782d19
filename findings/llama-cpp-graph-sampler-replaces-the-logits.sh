#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36): with llama_set_sampler, which samples in the graph, llama_get_logits_ith no longer
# returns the model's logits, and after top-k its row is not indexed by token.
#
# Guessed: the row stays what the model computed; the sampler adds a token beside it and, with the same seed, draws what it
# draws outside the graph.
# Seen, a random model with 512 tokens of vocabulary, on a processor:
#
#   temperature 0.8, dist:              same tokens as outside; the row is the model's row / 0.8
#   top-k 40, temperature 0.8, dist:    other tokens with the same seed; the row begins with the 40 kept logits,
#                                       so row[token] is another token's
#
# Code that reads probabilities, as log-probabilities and speculative verification do, gets wrong ones and no error.
# Do not set a sampler on a context whose logits are read.
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

HEADS, DIM, LAYERS, VOCAB = 4, 64, 2, 512
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
writer.add_tokenizer_model("no_vocab")
writer.add_vocab_size(VOCAB)


def matrix(name, *shape):
    writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32))


def norm(name, size):
    writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))


matrix("output", VOCAB, WIDTH)
norm("output_norm", WIDTH)
writer.add_tensor("token_embd.weight", rng.standard_normal((VOCAB, WIDTH)).astype(np.float32))
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


def context_of():
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 128, 2, 2
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


def answer(samplers, is_inside):
    """Return 12 sampled tokens and the first row; `is_inside`: the samplers are part of the graph."""
    chain, context = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params()), context_of()
    for one in samplers():
        llama.llama_sampler_chain_add(chain, one)
    assert not is_inside or llama.llama_set_sampler(context, 0, chain)
    tokens, rows = [3], []
    for at in range(12):
        rows.append(last_row(context, tokens[-1:], at))
        tokens.append(llama.llama_sampler_sample(chain, context, -1))
    return tokens, rows[0]


def temperature():
    return llama.llama_sampler_init_temp(0.8), llama.llama_sampler_init_dist(7)


def top_k():
    return llama.llama_sampler_init_top_k(40), *temperature()


tokens, row = answer(temperature, False)
tokens_inside, inside = answer(temperature, True)
print("temperature: tokens equal:", tokens == tokens_inside, " row / 0.8:", np.allclose(inside, row / 0.8, rtol=1e-5))
assert tokens == tokens_inside, "behaviour changed: temperature in the graph draws other tokens"
assert np.allclose(inside, row / 0.8, rtol=1e-5), "behaviour changed: the row is not the scaled one"

tokens, row = answer(top_k, False)
tokens_inside, inside = answer(top_k, True)
kept = np.sort(row)[::-1][:40] / 0.8
in_front = np.allclose(np.sort(inside[:40])[::-1], kept, rtol=1e-5)
print("top-k: tokens equal:", tokens == tokens_inside, " the 40 kept ones stand in front:", in_front)
assert in_front, "behaviour changed: the row is not the list of the kept ones"
assert int(np.argmax(inside[:40])) != int(np.argmax(row)), "behaviour changed: the row is indexed by token"
assert tokens != tokens_inside, "behaviour changed: the same seed draws the same tokens"
print("llama-cpp-python 0.3.36: as described")
PYTHON
