"""The type numbers of GGUF files, as llama.cpp of llama-cpp-python 0.3.36 knows them.

Sources: `ggml_type` in ggml/include/ggml.h with the sizes of ggml-common.h, `gguf_type` in ggml/include/gguf.h and
`llama_ftype` in include/llama.h. A test compares the tensor types with the `gguf` package.

Also here: which architectures llama.cpp knows, and which of them do not generate text by themselves.

`KNOWN` is the list LLM_ARCH_NAMES of src/llama-arch.cpp in the llama.cpp that llama-cpp-python 0.3.36 carries; take it
over again when the lower bound in pyproject.toml moves.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """How a tensor type is stored: rows are cut into blocks of `block` elements, `size` bytes each."""

    name: str
    block: int
    size: int


# Numbers 4, 5, 31-33 and 36-38 were removed from ggml: files with them no longer load, so they are unknown here.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

STRING_TYPE = 8
ARRAY_TYPE = 9

VALUE_TYPES: dict[int, str] = {
    0: "u8",
    1: "i8",
    2: "u16",
    3: "i16",
    4: "u32",
    5: "i32",
    6: "f32",
    7: "bool",
    STRING_TYPE: "str",
    ARRAY_TYPE: "arr",
    10: "u64",
    11: "i64",
    12: "f64",
}

# struct format characters of the fixed-size values; `array` uses the same letters for the same sizes.
VALUE_FORMATS: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "b", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip

FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}


_KNOWN = """
    clip llama llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert modern-bert nomic-bert
    nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3
    qwen3moe qwen3next qwen3vl qwen3vlmoe qwen35 qwen35moe qwen4exp phi2 phi3 phimoe plamo plamo2 plamo3 codeshell
    orion internlm2 minicpm minicpm3 gemma gemma2 gemma3 gemma3n gemma4 gemma4-assistant gemma-embedding starcoder2
    mamba mamba2 maple jamba falcon-h1 xverse command-r cohere2 cohere2moe dbrx olmo olmo2 olmoe muse-glimmer
    openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 chatglm glm4 glm4moe glm-dsa bitnet t5
    t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4 exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7
    granite granitemoe granitehybrid graniteswitch granite_swa chameleon wavtokenizer-dec plm bailingmoe bailingmoe2
    bailingmoe3 dots1 dots3note arcee afmoe laguna ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl hy_v3
    hy_v4 smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe apertus minimax-01
    hrm_text minimax-m2 minimax-m3 cogvlm rnd1 pangu-embedded mistral3 eagle3 dflash mistral4 paddleocr mimo2 step35
    spark2_5 llama-embed maincoder kimi-linear kimi-k3 glm5-next talkie mellum nanbeige qwen3tts pockettts
"""
KNOWN: frozenset[str] = frozenset(_KNOWN.split())

_ENCODERS = """
    bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert t5encoder gemma-embedding
    llama-embed
"""
_ENCODER = "an encoder for embeddings"
_SPEECH = "a part of a speech synthesiser"
_DIFFUSION = "a diffusion model, which does not write from left to right"
_DRAFT_HEAD = "a draft head that needs its target's hidden states"

NOT_GENERATORS: dict[str, str] = {
    "clip": "a vision or audio projector",
    "controlvector": "a control vector",
    "imatrix": "an importance matrix",
    "t5": "an encoder-decoder model, which localspec does not run",
    "wavtokenizer-dec": _SPEECH,
    "qwen3tts": _SPEECH,
    "pockettts": _SPEECH,
    **dict.fromkeys(("dream", "llada", "llada-moe", "rnd1"), _DIFFUSION),
    **dict.fromkeys(("gemma4-assistant",), _DRAFT_HEAD),
    **dict.fromkeys(_ENCODERS.split(), _ENCODER),
}

# Whose graphs name the input of each layer (`t_layer_inp` in src/models): for all others llama.cpp aborts when asked.
_TAPPABLE = """
    bailingmoe3 deepseek4 gemma4 hunyuan_vl lfm2 llama mimo2 minimax-01 minimax-m2 muse-glimmer nanbeige nemotron_h
    nemotron_h_moe gpt-oss qwen3 qwen3moe qwen3next qwen35 qwen35moe qwen4exp
"""
TAPPABLE: frozenset[str] = frozenset(_TAPPABLE.split())

# Whose state after the last norm llama.cpp takes for wider than it is (`n_embd_out_impl`): it ends the process.
UNTOLD_LAST: frozenset[str] = frozenset(("deepseek4", "qwen4exp"))

# With a graph for their blocks for further tokens (LLM_GRAPH_TYPE_DECODER_MTP), which attend: they keep no state.
_MTP = """
    bailingmoe3 cohere2moe deepseek2 deepseek32 glm-dsa glm4moe hy_v3 mimo2 nemotron_h_moe qwen35 qwen35moe qwen3next
    step35
"""
MTP_ARCHS: frozenset[str] = frozenset(_MTP.split())

# Whose context keeps a state for each of a pass's last tokens (`llm_arch_supports_rs_rollback`).
_ROLLS_BACK = """
    bailingmoe3 deepseek4 glm5-next kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 qwen35moe qwen4exp
"""
ROLLS_BACK: frozenset[str] = frozenset(_ROLLS_BACK.split())

# Whose layers keep a state, but each fourth, where the file does not say how often one attends.
FOURTH_ATTENDS: frozenset[str] = frozenset(("qwen35", "qwen35moe", "qwen3next"))

# Recurrent through and through: their converters may leave the attention keys out.
RECURRENT: frozenset[str] = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
