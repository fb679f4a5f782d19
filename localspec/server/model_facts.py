"""What a pair's file says of it: what it can do, and how long a text may be."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.prompt.message_forms import knows_tools
from localspec.prompt.reasoning_marks import KNOWN
from localspec.server.fields import OfferedPair, ServedPair

# As llama.cpp finds the token before a prefix (llama_vocab::impl::load).
FILLING = {b"<|fim_prefix|>", b"<fim-prefix>", b"<fim_prefix>", b"<|code_prefix|>", b"[PREFIX]", b"<PRE>",
           "<｜fim▁begin｜>".encode(), "▁<PRE>".encode()}  # fmt: skip
SWITCHES = ("enable_thinking", "reasoning_effort")  # variables by which templates are told to reason


def file_of(listed: OfferedPair) -> ModelInfo | None:
    """Return what the file of a pair's target says, whether it is loaded or not; None where it cannot be read."""
    if isinstance(listed, ServedPair):
        with suppress(LocalspecError, OSError):
            path = Path(listed.settings.target)
            return _read(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=8)
def _read(path: Path, _changed: int) -> ModelInfo:
    return model_info(read_model(path), needs_weights=False)


def template_of(served: ServedPair) -> str:
    file = file_of(served)
    return served.request.template or (file.chat_template if file is not None else "") or ""


def capabilities(served: ServedPair) -> list[str]:
    file, template = file_of(served), template_of(served)
    thinks = any(word in template for word in (*SWITCHES, *(marks.start for marks in KNOWN)))
    tokens = () if file is None else map(file.vocab.text, range(file.n_vocab))
    fills = any(token in FILLING for token in tokens)
    able = {"completion": True, "tools": knows_tools(template), "insert": fills, "thinking": thinks}
    return [name for name, is_able in able.items() if is_able]


def longest_context(listed: OfferedPair) -> int:
    """Return the tokens that a context can grow to; where its length was chosen, that length."""
    file = file_of(listed)
    is_chosen = not isinstance(listed, ServedPair) or listed.settings.ctx is not None or listed.settings.verifier
    return listed.n_ctx if file is None or is_chosen else max(listed.n_ctx, file.n_ctx_train)
