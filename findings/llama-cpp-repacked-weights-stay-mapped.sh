#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), Linux, a model on the processor with the default settings: weights that are laid
# out anew for the processor (REPACK) are in memory twice, once as the copy and once as pages of the mapped file.
#
# Guessed: the pages that were only read for the copy go, so a model takes about the size of its file.
# Seen, a random model of 0.14 GB in Q4_0, on x86-64 with AVX-512, resident memory over the file's size after a pass:
#
#   as it is:            1.83, of which 0.77 is the mapped file
#   not mapped:          1.06
#   no extra buffers:    1.08, nearly all the mapped file; weights are not laid out anew
#
# The kernel may take such pages back when memory is short, and no pass reads them again. Until then tools, limits of
# containers and "does it fit" by resident memory count them. madvise(MADV_DONTNEED) over the mapping after the load
# brings the first case to 1.08, and the next row has the same bits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6 # compiles for minutes
cd "$folder"
cat >make.py <<'PYTHON'
import gguf
import numpy as np

HEADS, DIM, LAYERS, VOCAB = 16, 128, 4, 512
WIDTH, FF = HEADS * DIM, 8192
rng = np.random.default_rng(0)
writer = gguf.GGUFWriter("model.gguf", "llama")
writer.add_context_length(1024)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(FF)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(DIM)
writer.add_tokenizer_model("no_vocab")
writer.add_vocab_size(VOCAB)
Q4_0 = gguf.GGMLQuantizationType.Q4_0


def matrix(name, *shape):
    weights = (rng.standard_normal(shape, np.float32) * shape[-1] ** -0.5).astype(np.float32)
    writer.add_tensor(f"{name}.weight", gguf.quants.quantize(weights, Q4_0), raw_dtype=Q4_0)


def norm(name):
    writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))


matrix("token_embd", VOCAB, WIDTH)
matrix("output", VOCAB, WIDTH)
norm("output_norm")
for layer in range(LAYERS):
    at = f"blk.{layer}."
    norm(at + "attn_norm")
    norm(at + "ffn_norm")
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(at + name, WIDTH, WIDTH)
    matrix(at + "ffn_gate", FF, WIDTH)
    matrix(at + "ffn_up", FF, WIDTH)
    matrix(at + "ffn_down", WIDTH, FF)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
PYTHON
cat >use.py <<'PYTHON'
"""Load the model in one way; print the resident memory that it added, and of mapped files, over the file's size."""
import ctypes
import json
import re
import sys
from pathlib import Path

import llama_cpp as llama
import numpy as np

VOCAB = 512
way = sys.argv[1]
lines = []
log = llama.llama_log_callback(lambda level, text, data: lines.append(text.decode(errors="replace")))
llama.llama_log_set(log, None)
llama.llama_backend_init()


def resident():
    """Return the kilobytes of resident anonymous memory and of resident pages of files."""
    told = Path("/proc/self/status").read_text()
    return np.array([int(re.search(rf"{name}:\s*(\d+)", told)[1]) for name in ("RssAnon", "RssFile")])


before = resident()
params = llama.llama_model_default_params()
params.use_extra_bufts = way != "no extra buffers"
if way == "no mmap":
    params.load_mode = llama.LLAMA_LOAD_MODE_NONE
model = llama.llama_model_load_from_file(b"model.gguf", params)
settings = llama.llama_context_default_params()
settings.n_ctx, settings.n_threads, settings.n_threads_batch = 64, 2, 2
context = llama.llama_init_from_model(model, settings)


def row(position):
    """Evaluate a token at a position; return its logits."""
    batch = llama.llama_batch_init(1, 0, 1)
    batch.n_tokens, batch.token[0], batch.pos[0] = 1, 7, position
    batch.n_seq_id[0], batch.seq_id[0][0], batch.logits[0] = 1, 0, True
    assert llama.llama_decode(context, batch) == 0
    logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(context, 0), (VOCAB,)).copy()
    llama.llama_batch_free(batch)
    return logits


kept = row(0)
size = Path("model.gguf").stat().st_size / 1024
anonymous, mapped = (resident() - before) / size
if way == "let go":
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("/model.gguf"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 4)  # MADV_DONTNEED
    anonymous, mapped = (resident() - before) / size
    llama.llama_memory_clear(llama.llama_get_memory(context), True)
    assert np.array_equal(row(0), kept), "behaviour changed: the row is another"
print(json.dumps({"anonymous": anonymous, "mapped": mapped, "repacked": any("REPACK" in line for line in lines)}))
PYTHON
venv/bin/python make.py
ways=("as it is" "no mmap" "no extra buffers" "let go")
for way in "${ways[@]}"; do venv/bin/python use.py "$way"; done | tee seen.txt
venv/bin/python - <<'PYTHON'
import json
from pathlib import Path

default, unmapped, plain, let_go = (json.loads(line) for line in Path("seen.txt").read_text().splitlines())
if not default["repacked"]:
    raise SystemExit("this processor has no other layout for Q4_0: nothing to see")
assert default["anonymous"] > 0.9 and default["mapped"] > 0.5, "behaviour changed: the weights are there once"
assert unmapped["anonymous"] > 0.9 and unmapped["mapped"] < 0.2, "behaviour changed: without mmap"
assert plain["anonymous"] < 0.3 and plain["mapped"] > 0.9, "behaviour changed: without extra buffers"
assert let_go["anonymous"] > 0.9 and let_go["mapped"] < 0.2, "behaviour changed: the pages stay"
print("llama-cpp-python 0.3.36: as described")
PYTHON
