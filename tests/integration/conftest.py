"""What these tests share: a tiny random model, and the storyteller pair in F32, made once per run.

Q8_0 products round activations to eight bits, which turns a difference of 1e-6 between a batch's row and the same row
alone into 1e-2; in F32 both agree to 1e-3, so a wrong cache cannot hide behind the rounding.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.backends.lib import api
from localspec.backends.llama_cpp import LlamaBackend, Model
from tests.integration import pair
from tests.integration.gguf_models import EXACT, random_gguf


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with Model(random_gguf(), EXACT) as opened:
        yield opened


@pytest.fixture
def backend(model: Model) -> Iterator[LlamaBackend]:
    with LlamaBackend(model) as opened:
        yield opened


@pytest.fixture(scope="session")
def f32_pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the paths of target and draft with every weight in F32."""
    folder = tmp_path_factory.mktemp("f32")
    paths = {"target": folder / "target.gguf", "draft": folder / "draft.gguf"}
    for source, path in zip((pair.TARGET, pair.DRAFT), paths.values(), strict=True):
        params = api.llama_model_quantize_default_params()
        params.ftype = api.LLAMA_FTYPE_ALL_F32
        params.allow_requantize = True
        assert api.llama_model_quantize(str(source).encode(), str(path).encode(), params) == 0
    return paths


@pytest.fixture(scope="module")
def target(f32_pair: dict[str, Path]) -> Iterator[LlamaBackend]:
    """The target in F32, one context per test module."""
    with pair.backend(f32_pair["target"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def draft(f32_pair: dict[str, Path]) -> Iterator[LlamaBackend]:
    """The draft in F32, one context per test module."""
    with pair.backend(f32_pair["draft"]) as opened:
        yield opened
