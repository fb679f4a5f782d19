#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), hybrid models: llama_memory_seq_cp after a rollback copies the state of the tokens
# that were taken back.
#
# Guessed: a copy of a sequence continues as the original does.
# Seen, a random qwen35 model with n_rs_seq = 4: 20 tokens, a batch of 4, of which llama_memory_seq_rm keeps some, then
# llama_memory_seq_cp from sequence 0 to 1, and the same next token on both:
#
#   kept 4 of 4 (nothing taken back):   original and copy right to rounding
#   kept 3, 2 or 1 of 4:                original right to rounding, the copy off by 3 (the logits' deviation is 1)
#
# The rollback is carried out by the next decode of that sequence, and the copy does not take it along. Decode once before
# copying, or copy by saving and setting the sequence's state.
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

WIDTH, FF, HEADS, HEAD, STATE, GROUPS, RANK, CONV, LAYERS, VOCAB = 128, 256, 2, 64, 32, 2, 4, 4, 4, 512
INNER = STATE * RANK
MIXED = 2 * STATE * GROUPS + INNER
rng = np.random.default_rng(0)
writer = gguf.GGUFWriter("model.gguf", "qwen35")
writer.add_context_length(4096)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(FF)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_key_length(HEAD)
writer.add_value_length(HEAD)
writer.add_rope_dimension_count(HEAD)
writer.add_rope_dimension_sections([11, 11, 10, 0])
writer.add_layer_norm_rms_eps(1e-5)
writer.add_uint32("qwen35.full_attention_interval", 4)
writer.add_ssm_conv_kernel(CONV)
writer.add_ssm_inner_size(INNER)
writer.add_ssm_state_size(STATE)
writer.add_ssm_time_step_rank(RANK)
writer.add_ssm_group_count(GROUPS)
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
    norm(at + "post_attention_norm", WIDTH)
    matrix(at + "ffn_gate", FF, WIDTH)
    matrix(at + "ffn_up", FF, WIDTH)
    matrix(at + "ffn_down", WIDTH, FF)
    if layer == LAYERS - 1:  # attends; the layers before keep a state
        matrix(at + "attn_q", 2 * HEADS * HEAD, WIDTH)
        for name in ("attn_k", "attn_v"):
            matrix(at + name, HEADS * HEAD, WIDTH)
        matrix(at + "attn_output", WIDTH, HEADS * HEAD)
        norm(at + "attn_q_norm", HEAD)
        norm(at + "attn_k_norm", HEAD)
        continue
    matrix(at + "attn_qkv", MIXED, WIDTH)
    matrix(at + "attn_gate", INNER, WIDTH)
    matrix(at + "ssm_conv1d", MIXED, CONV)
    matrix(at + "ssm_alpha", RANK, WIDTH)
    matrix(at + "ssm_beta", RANK, WIDTH)
    matrix(at + "ssm_out", WIDTH, INNER)
    norm(at + "ssm_norm", STATE)
    writer.add_tensor(at + "ssm_dt.bias", rng.standard_normal(RANK).astype(np.float32))
    writer.add_tensor(at + "ssm_a", (-np.abs(rng.standard_normal(RANK)) - 0.1).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

quiet = llama.llama_log_callback(lambda *_: None)
llama.llama_log_set(quiet, None)
llama.llama_backend_init()
model = llama.llama_model_load_from_file(b"model.gguf", llama.llama_model_default_params())


def decode(context, tokens, start, sequence=0):
    """Return the logits of each of `tokens`, evaluated in one batch from position `start` on."""
    n = len(tokens)
    batch = llama.llama_batch_init(n, 0, 1)
    batch.n_tokens = n
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i] = int(token), start + i
        batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, 1
    assert llama.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(llama.llama_get_logits_ith(context, i), (VOCAB,)).copy() for i in range(n)]
    llama.llama_batch_free(batch)
    return rows


def context_of():
    params = llama.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 512, 2, 2
    params.n_rs_seq, params.n_seq_max, params.kv_unified = 4, 2, True
    return llama.llama_init_from_model(model, params)


def gaps(kept):
    """Return by how much the next logits of original and copy are off after all but `kept` of 4 were taken back."""
    context, other = context_of(), context_of()
    memory = llama.llama_get_memory(context)
    for one in (context, other):
        decode(one, text, 0)
    decode(context, draft, len(text))
    at = len(text) + kept
    assert kept == 4 or llama.llama_memory_seq_rm(memory, 0, at, -1)
    llama.llama_memory_seq_cp(memory, 0, 1, -1, -1)
    for i in range(kept):
        decode(other, draft[i : i + 1], len(text) + i)
    right = decode(other, [7], at)[0]
    copy, original = decode(context, [7], at, sequence=1)[0], decode(context, [7], at)[0]
    return float(abs(original - right).max()), float(abs(copy - right).max())


text, draft = np.random.default_rng(1).integers(0, VOCAB, 20), np.random.default_rng(2).integers(0, VOCAB, 4)
found = {kept: gaps(kept) for kept in (4, 3, 2, 1)}
for kept, (original, copy) in found.items():
    print(f"kept {kept} of 4: original off by {original:.6f}, copy off by {copy:.6f}")
assert all(original < 1e-3 for original, _ in found.values()), "behaviour changed: the original is wrong"
assert found[4][1] < 1e-3, "behaviour changed: a copy without a rollback is wrong"
assert all(found[kept][1] > 0.1 for kept in (3, 2, 1)), "behaviour changed: the copy takes the rollback along"
print("llama-cpp-python 0.3.36: as described")
PYTHON
