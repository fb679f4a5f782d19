#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), processor: with flash attention and F16 keys and values, the logits of a token
# depend on how many tokens share its batch, but only once the cache holds 256 tokens or more.
#
# Guessed: either rows are the same bits whatever else is in the batch, or they differ at every length.
# Seen, a random model with Q8_0 weights, 2 threads, 4 tokens in one batch against the same 4 one by one:
#
#                         250 cached    256 cached    1000 cached
#   flash off, F16/F16    same bits     same bits     same bits
#   flash on,  F16/F16    same bits     off by 0.04   off by 0.05
#   flash on,  F16/BF16   same bits     same bits     same bits        (logits have a deviation of about 1)
#
# A test of speculative decoding on short texts finds the rows of a verification exact, and long texts then fork. Keys in
# F16 with values in BF16 keep flash attention and equal rows.
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
from gguf import GGMLQuantizationType, quants

HEADS, DIM, LAYERS, VOCAB, BF16 = 4, 64, 2, 512, 30
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
    values = (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)
    kind = GGMLQuantizationType.Q8_0
    writer.add_tensor(f"{name}.weight", quants.quantize(values, kind), raw_dtype=kind)


writer.add_tensor("token_embd.weight", rng.standard_normal((VOCAB, WIDTH)).astype(np.float32))
writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
matrix("output", VOCAB, WIDTH)
for layer in range(LAYERS):
    at = f"blk.{layer}."
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"{at}{name}.weight", np.ones(WIDTH, np.float32))
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


def decode(context, tokens, start):
    """Return the logits of each of `tokens`, evaluated in one batch from position `start` on."""
    n = len(tokens)
    batch = llama.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i] = int(token), start + i
        batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
    assert llama.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (VOCAB,)).copy() for i in range(n)]
    llama.llama_batch_free(batch)
    return rows


def difference(flash, values, cached):
    """Return by how much the logits of 4 tokens in one batch differ at most from those of each alone."""
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 2048, 2048, 2, 2
    params.flash_attn_type, params.type_k, params.type_v = int(flash), llama.GGML_TYPE_F16, values
    context = llama.llama_init_from_model(model, params)
    decode(context, text[:cached], 0)
    together = decode(context, text[cached : cached + 4], cached)
    llama.llama_memory_seq_rm(llama.llama_get_memory(context), 0, cached, -1)
    alone = [decode(context, text[i : i + 1], i)[0] for i in range(cached, cached + 4)]
    llama.llama_free(context)
    return max(float(abs(a - b).max()) for a, b in zip(together, alone))


text = np.random.default_rng(1).integers(0, VOCAB, 1004)
kinds = {
    "off, F16/F16": (False, llama.GGML_TYPE_F16),
    "on, F16/F16": (True, llama.GGML_TYPE_F16),
    "on, F16/BF16": (True, BF16),
}
found = {name: {cached: difference(*kind, cached) for cached in (250, 256, 1000)} for name, kind in kinds.items()}
for name, row in found.items():
    print(f"flash {name:<14}", "  ".join(f"{cached} cached: {gap:.3f}" for cached, gap in row.items()))
gaps = found.pop("on, F16/F16")
assert gaps[250] == 0, "behaviour changed: rows differ at 250 cached tokens too"
assert gaps[256] > 1e-3 and gaps[1000] > 1e-3, "behaviour changed: rows are equal at 256 cached tokens and more"
assert all(gap == 0 for row in found.values() for gap in row.values()), "behaviour changed: other kinds differ as well"
print("llama-cpp-python 0.3.36: as described")
PYTHON
