"""Which architectures llama.cpp knows, and which of them do not generate text by themselves.

`KNOWN` is the list LLM_ARCH_NAMES of src/llama-arch.cpp in the llama.cpp that llama-cpp-python 0.3.36 carries; take it
over again when the lower bound in pyproject.toml moves.
"""

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
