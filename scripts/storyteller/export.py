"""Write a model as GGUF that llama.cpp reads: Q8_0 matrices, F32 norms, a byte-level BPE tokenizer and ChatML."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Quant
from gguf.quants import quantize

from .model import HEAD, Llama

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BLOCK_NAMES = {
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
TOP_NAMES = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "head.weight": "output.weight"}


def gguf_name(name: str) -> str:
    """Translate `blocks.3.q.weight` to `blk.3.attn_q.weight`."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, layer, part, _ = name.split(".")
    return f"blk.{layer}.{BLOCK_NAMES[part]}.weight"


def _add_shape(writer: gguf.GGUFWriter, model: Llama) -> None:
    shape = model.shape
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.d)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ff)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer_json: Path) -> None:
    table = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    special = {entry["content"] for entry in table["added_tokens"]}
    ids: dict[str, int] = table["model"]["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    types = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    merges = [m if isinstance(m, str) else " ".join(m) for m in table["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(ids["<|endoftext|>"])
    writer.add_eos_token_id(ids["<|endoftext|>"])
    writer.add_eot_token_id(ids["<|im_end|>"])
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def export(model: Llama, tokenizer_json: Path, path: Path, name: str, description: str) -> None:
    """Write `model` to `path` atomically; matrices become Q8_0, vectors stay F32."""
    partial = path.with_name(path.name + ".tmp")
    writer = gguf.GGUFWriter(partial, "llama")
    writer.add_name(name)
    writer.add_author("the localspec authors")
    writer.add_license("MIT")
    writer.add_description(description)
    _add_shape(writer, model)
    _add_tokenizer(writer, tokenizer_json)
    for key, value in model.state_dict().items():
        array = value.detach().float().cpu().numpy()
        if array.ndim == 1:
            writer.add_tensor(gguf_name(key), array.astype(np.float32))
        else:
            writer.add_tensor(gguf_name(key), quantize(array, Quant.Q8_0), raw_dtype=Quant.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
