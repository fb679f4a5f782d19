"""A tiny model of the architecture deepseek4: three layers, one for each way in which its cache compresses the text."""

from tests.weights.stateful import Arrays, Draw, Plan, Size, Values

RATIOS = (0, 4, 128)  # tokens for one compressed entry; 0: attention to a window alone
STREAMS, GROUPS = 4, 2  # hyper-connections; groups of the output
HEADS, HEAD, RANK = 4, 64, 32
EXPERTS, FF = 4, 64
INDEX_HEADS, INDEX_HEAD = 2, 64


def _build(draw: Draw, size: Size) -> tuple[Arrays, Values]:
    found: Arrays = {
        "output_norm.weight": draw.norm(size.width),
        "output_hc_fn.weight": draw.linear(STREAMS, STREAMS * size.width),
        "output_hc_base.weight": draw.noise(STREAMS),
        "output_hc_scale.weight": draw.norm(1),
    }
    for layer, ratio in enumerate(RATIOS):
        at = f"blk.{layer}."
        found |= _attention(draw, size, at) | _connections(draw, size, at) | _experts(draw, size, at)
        found |= _compressor(draw, size, f"{at}attn_compressor", HEAD, ratio) if ratio else {}
        if ratio == 4:
            found |= _compressor(draw, size, f"{at}indexer_compressor", INDEX_HEAD, ratio)
            found[f"{at}indexer.proj.weight"] = draw.linear(INDEX_HEADS, size.width)
            found[f"{at}indexer.attn_q_b.weight"] = draw.linear(INDEX_HEADS * INDEX_HEAD, RANK)
    return found, _values()


def _attention(draw: Draw, size: Size, at: str) -> Arrays:
    return {
        f"{at}attn_norm.weight": draw.norm(size.width),
        f"{at}attn_sinks.weight": draw.noise(HEADS),
        f"{at}attn_q_a.weight": draw.linear(RANK, size.width),
        f"{at}attn_q_a_norm.weight": draw.norm(RANK),
        f"{at}attn_q_b.weight": draw.linear(HEADS * HEAD, RANK),
        f"{at}attn_kv.weight": draw.linear(HEAD, size.width),
        f"{at}attn_kv_a_norm.weight": draw.norm(HEAD),
        f"{at}attn_output_a.weight": draw.linear(GROUPS * RANK, HEADS * HEAD // GROUPS),
        f"{at}attn_output_b.weight": draw.linear(size.width, GROUPS * RANK),
    }


def _connections(draw: Draw, size: Size, at: str) -> Arrays:
    n = (2 + STREAMS) * STREAMS
    found: Arrays = {}
    for part in ("attn", "ffn"):
        found[f"{at}hc_{part}_fn.weight"] = draw.linear(n, STREAMS * size.width)
        found[f"{at}hc_{part}_base.weight"] = draw.noise(n)
        found[f"{at}hc_{part}_scale.weight"] = draw.norm(3)
    return found


def _experts(draw: Draw, size: Size, at: str) -> Arrays:
    found: Arrays = {
        f"{at}ffn_norm.weight": draw.norm(size.width),
        f"{at}ffn_gate_inp.weight": draw.linear(EXPERTS, size.width),
        f"{at}exp_probs_b.bias": draw.noise(EXPERTS, scale=0.1),
    }
    for name, rows, columns in (("gate", FF, size.width), ("up", FF, size.width), ("down", size.width, FF)):
        found[f"{at}ffn_{name}_exps.weight"] = draw.noise(EXPERTS, rows, columns, scale=columns**-0.5)
        found[f"{at}ffn_{name}_shexp.weight"] = draw.linear(rows, columns)
    return found


def _compressor(draw: Draw, size: Size, name: str, width: int, ratio: int) -> Arrays:
    rows = width * (2 if ratio == 4 else 1)
    return {
        f"{name}_kv.weight": draw.linear(rows, size.width),
        f"{name}_gate.weight": draw.linear(rows, size.width),
        f"{name}_ape.weight": draw.noise(ratio, rows),
        f"{name}_norm.weight": draw.norm(width),
    }


def _values() -> Values:
    return {
        "attention.head_count": ("u32", HEADS),
        "attention.head_count_kv": ("u32", 1),
        "attention.key_length": ("u32", HEAD),
        "attention.value_length": ("u32", HEAD),
        "attention.q_lora_rank": ("u32", RANK),
        "attention.output_lora_rank": ("u32", RANK),
        "attention.output_group_count": ("u32", GROUPS),
        "attention.sliding_window": ("u32", 128),
        "attention.compress_ratios": ("arr[u32]", list(RATIOS)),
        "attention.compress_rope_freq_base": ("f32", 160000.0),
        "attention.indexer.head_count": ("u32", INDEX_HEADS),
        "attention.indexer.key_length": ("u32", INDEX_HEAD),
        "attention.indexer.top_k": ("u32", 8),
        "rope.dimension_count": ("u32", HEAD // 2),
        "rope.freq_base": ("f32", 10000.0),
        "hyper_connection.count": ("u32", STREAMS),
        "hyper_connection.sinkhorn_iterations": ("u32", 3),
        "hyper_connection.epsilon": ("f32", 1e-6),
        "hash_layer_count": ("u32", 0),
        "expert_count": ("u32", EXPERTS),
        "expert_used_count": ("u32", 2),
        "expert_shared_count": ("u32", 1),
        "expert_feed_forward_length": ("u32", FF),
        "expert_gating_func": ("u32", 4),
        "expert_weights_scale": ("f32", 1.0),
        "expert_weights_norm": ("bool", True),
        "swiglu_clamp_exp": ("f32", 10.0),
    }


PLAN: Plan = (_build, len(RATIOS))
