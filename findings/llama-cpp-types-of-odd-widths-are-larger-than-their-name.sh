#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), quantising a model whose rows are no multiple of 256 numbers (896, as a 0.5B has):
# a file named after few bits holds more, and its name and metadata do not say so.
#
# Guessed: a Q2_K file is about half as large as a Q4_0 file, Q4_K_S is as large as Q4_0, and Q6_K saves a quarter of Q8_0.
# Seen: matrices with such rows get the type named below, of blocks of 32. The return code is 0, general.file_type and
# llama_model_desc keep the asked name, and only the log names the types.
#
#   asked      Q2_K    Q3_K_S   Q4_K_S   Q5_K_S   Q6_K
#   written    Q4_0    Q4_0     Q5_0     Q5_1     Q8_0
#
# Here two thirds of the numbers are in such rows. In sizes of the Q4_0 file, Q2_K and Q3_K_S have 0.94, both the same bytes,
# and Q4_K_S has 1.17. Q6_K has 0.94 of Q8_0. So "Q4_0 or Q4_K_S, they are as large" and "two bits need half of the memory"
# fail for such models.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6 # compiles for minutes
cd "$folder"
cat >make.py <<'PYTHON'
import gguf
import numpy as np

HEADS, WIDTH, FF, LAYERS, VOCAB = 14, 896, 4864, 4, 512
rng = np.random.default_rng(0)
writer = gguf.GGUFWriter("model.gguf", "llama")
writer.add_context_length(1024)
writer.add_embedding_length(WIDTH)
writer.add_block_count(LAYERS)
writer.add_feed_forward_length(FF)
writer.add_head_count(HEADS)
writer.add_head_count_kv(HEADS)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(WIDTH // HEADS)
writer.add_tokenizer_model("no_vocab")
writer.add_vocab_size(VOCAB)


def matrix(name, *shape):
    writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float16))


matrix("token_embd", VOCAB, WIDTH)
matrix("output", VOCAB, WIDTH)
writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
for layer in range(LAYERS):
    at = f"blk.{layer}."
    for name in ("attn_norm", "ffn_norm"):
        writer.add_tensor(f"{at}{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        matrix(at + name, WIDTH, WIDTH)
    for name in ("ffn_gate", "ffn_up"):
        matrix(at + name, FF, WIDTH)
    matrix(at + "ffn_down", WIDTH, FF)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
PYTHON
cat >write.py <<'PYTHON'
"""Write the model in each type; print sizes, the type of a matrix of 896 columns, and what the file calls itself."""
import ctypes
from pathlib import Path

import gguf
import llama_cpp as llama

silent = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(silent, None)
llama.llama_backend_init()
sizes, types, names = {}, {}, {}
for kind in ("Q2_K", "Q3_K_S", "Q4_0", "Q4_K_S", "Q5_K_S", "Q6_K", "Q8_0"):
    params = llama.llama_model_quantize_default_params()
    params.ftype = getattr(llama, f"LLAMA_FTYPE_MOSTLY_{kind}")
    assert llama.llama_model_quantize(b"model.gguf", f"{kind}.gguf".encode(), params) == 0, kind
    sizes[kind] = Path(f"{kind}.gguf").stat().st_size
    reader = gguf.GGUFReader(f"{kind}.gguf")
    types[kind] = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}["blk.1.ffn_up.weight"]
    assert reader.get_field("general.file_type").contents() == params.ftype, "behaviour changed: the metadata"
    settings = llama.llama_model_default_params()
    model = llama.llama_model_load_from_file(f"{kind}.gguf".encode(), settings)
    text = ctypes.create_string_buffer(128)
    llama.llama_model_desc(model, text, 128)
    names[kind] = text.value.decode()
    llama.llama_model_free(model)
    print(f"{kind:7} {types[kind]:5} {sizes[kind] / sizes.get('Q4_0', sizes[kind]):.2f} {sizes[kind]:9} bytes  {names[kind]}")
over = {kind: round(size / sizes["Q4_0"], 2) for kind, size in sizes.items()}
print(over, "Q6_K over Q8_0", round(sizes["Q6_K"] / sizes["Q8_0"], 2))
written = [types[kind] for kind in ("Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K")]
assert written == ["Q4_0", "Q4_0", "Q5_0", "Q5_1", "Q8_0"], f"behaviour changed: {written}"
assert over["Q2_K"] > 0.85, "behaviour changed: two bits are smaller"
assert over["Q4_K_S"] > 1.1, "behaviour changed: Q4_K_S is as large as Q4_0"
assert all(kind[:4] in name for kind, name in names.items()), "behaviour changed: the description names other types"
print("llama-cpp-python 0.3.36: as described")
PYTHON
venv/bin/python make.py
venv/bin/python write.py
