"""About what a model of the catalogue consists of, before it is downloaded: its size there, in a typical shape.

The shape is that of a known model of about as many weights. A plan needs the size first of all; the cache of a model
that is unlike others is in the catalogue.
"""

import math
from dataclasses import dataclass

from localspec.models.catalog import Catalog, CatalogModel
from localspec.models.gguf.layer_sizes import Anatomy, Layer
from localspec.models.names import HubName

EXPERTS, USED = 128, 8  # of a mixture; with another share the same weights would be read
MOST_ROUTED = 0.98  # of the weights: attention and what chooses the experts are read by every token
UNTIED = 3.0  # billions of weights: from here on the head is a matrix of its own


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A known model: billions of weights, layers, width, keys of a layer's cache, feed-forward width, heads, tokens."""

    params: float
    layers: int
    width: int
    kv: int
    ff: int
    heads: int
    vocab: int


KNOWN = (
    KnownModel(0.135, 30, 576, 192, 1536, 9, 49152),  # SmolLM2 135M
    KnownModel(0.49, 24, 896, 128, 4864, 14, 151936),  # Qwen2.5 0.5B
    KnownModel(1.24, 16, 2048, 512, 8192, 32, 128256),  # Llama 3.2 1B
    KnownModel(1.54, 28, 1536, 256, 8960, 12, 151936),  # Qwen2.5 1.5B
    KnownModel(3.21, 28, 3072, 1024, 8192, 24, 128256),  # Llama 3.2 3B
    KnownModel(8.03, 32, 4096, 1024, 14336, 32, 128256),  # Llama 3.1 8B
    KnownModel(14.8, 40, 5120, 1024, 17408, 40, 151936),  # Qwen3 14B
    KnownModel(32.8, 64, 5120, 1024, 25600, 64, 151936),  # Qwen3 32B
    KnownModel(70.6, 80, 8192, 1024, 28672, 64, 128256),  # Llama 3.1 70B
    KnownModel(123.0, 88, 12288, 1024, 28672, 96, 32768),  # Mistral Large 123B
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A model of the catalogue in one quantisation of `bytes`, about."""

    model: CatalogModel
    quant: str
    bytes: int

    @property
    def anatomy(self) -> Anatomy:
        """Return its parts, about: layers share evenly what embedding and head leave."""
        model = self.model
        shape = min(KNOWN, key=lambda known: abs(math.log(known.params / model.params)))
        is_tied = model.params < UNTIED
        table = min(int(self.bytes / (model.params * 1e9) * shape.vocab * shape.width), self.bytes // 3)
        body = self.bytes - (table if is_tied else 2 * table)
        experts = 0
        if model.active:
            routed = (model.params - model.active) / (1.0 - USED / EXPERTS) / model.params
            experts = int(body * min(routed, MOST_ROUTED))
        kv = model.cache_kib * 1024 // (4 * shape.layers) or shape.kv  # keys and values of 2 bytes
        layer = Layer((body - experts) // shape.layers, experts // shape.layers, kv, kv)
        return Anatomy(
            layers=(layer,) * shape.layers,
            embedding=table,
            output=table,
            is_tied=is_tied,
            width=shape.width,
            ff=shape.ff,
            n_heads=shape.heads,
            n_vocab=shape.vocab,
            n_experts=EXPERTS if model.active else 0,
            n_used=USED if model.active else 0,
            n_next=0,
            largest=table,
            types=((self.quant, self.bytes),),
        )


def estimate(name: HubName, catalog: Catalog) -> Estimate | None:
    """Return what the catalogue knows of a model of the hub, None where it knows nothing of its size."""
    model = catalog.of_repo(name.repo)
    if model is None or name.file is not None:
        return None
    quant = name.quant or next(iter(model.about_gb))
    about = model.about_gb.get(quant)
    return None if about is None else Estimate(model, quant, round(1e9 * about))
