"""One model in memory: its file is read with every bound checked, then llama.cpp loads it and reports how far it is."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from localspec.backends.batch import ignored
from localspec.backends.head_backend import HeadBackend, HeadModel, HeadTraits, OwnHead
from localspec.backends.llama_cpp import LlamaBackend, Model
from localspec.backends.marginals import open_head
from localspec.backends.model import Closeable
from localspec.backends.options import LoadOptions
from localspec.backends.reported import reported
from localspec.backends.saved_state import SavingBackend
from localspec.backends.tap import Tap
from localspec.engine import events
from localspec.engine.protocols import Cancel
from localspec.engine.translation import Lexicon
from localspec.errors import ResourceError
from localspec.models.gguf.draft_kinds import MTP
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.head import HeadInfo, encoder_width
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import read_model
from localspec.prompt.prompt import special_texts
from localspec.prompt.truncate import fitting
from localspec.session.placement import InspectedModel
from localspec.settings.request import Request
from localspec.speculation.capabilities import ModelCapabilities


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One model in memory with what its file said of itself."""

    info: ModelInfo
    model: Model
    backend: LlamaBackend
    specials: frozenset[str]
    load_ms: float = 0.0

    def facts(self) -> events.ModelFacts:
        return events.ModelFacts(
            path=str(self.info.path),
            bytes=self.info.bytes,
            arch=self.info.architecture,
            quant=self.info.quant,
            n_params=self.info.n_params,
            n_vocab=self.info.n_vocab,
            n_layer=self.info.n_layer,
            kv_bytes=self.backend.kv_bytes,
            devices=self.backend.capabilities.devices,
            fingerprint=file_fingerprint(self.info.path),
            load_ms=self.load_ms,
        )

    @property
    def kind(self) -> str:
        return "model" if self.info.head is None else self.info.head.kind

    def capabilities(self) -> ModelCapabilities:
        return ModelCapabilities(self.info.architecture, self.backend.capabilities, self.model.is_stateful)

    def lexicon(self) -> Lexicon:
        model, special = self.model, self.model.special
        specials: dict[int, bytes] = {}
        for text in self.specials:
            tokens = model.tokenize(text, parse_special=True)
            if len(tokens) == 1:
                specials[tokens[0]] = text.encode()
        return Lexicon(
            n_vocab=model.n_vocab,
            spellings={text: token for text, token in self.info.vocab.spellings.items() if token not in specials},
            specials=specials,
            ends=tuple(dict.fromkeys(token for token in (special.eot, special.eos) if token is not None)),
            bos=special.bos,
            add_bos=special.add_bos,
            tokenize=model.tokenize,
            piece=partial(model.piece, special=True),
        )

    def close(self) -> None:
        self.backend.close()
        self.model.close()


@contextmanager
def closed_on_error(model: Closeable) -> Iterator[None]:
    """Close a model where the block does not end as it should, or is dropped."""
    try:
        yield
    except BaseException:
        model.close()
        raise


def own_head(target: LoadedModel, looked: InspectedModel) -> LoadedModel:
    """Return the block of a target's own file that predicts further tokens, as a draft with a context of its own."""
    shape = looked.block_shape()
    model = OwnHead(target.model, shape)
    backend = HeadBackend(model, target.backend, model.options)
    head = HeadInfo(MTP, target.info.n_embd)
    return LoadedModel(replace(target.info, head=head), model, backend, target.specials)


def inspect_model(path: str, *, may_be_head: bool = False) -> InspectedModel:
    """Read a file's header, with every bound checked, before llama.cpp sees it. A draft may be a head."""
    header = read_model(Path(path))
    return InspectedModel(header, model_info(header, may_be_head=may_be_head))


def load_model(
    looked: InspectedModel,
    options: LoadOptions,
    what: str,
    cancel: Cancel,
    tell: Callable[[int], None] = ignored,
    target: LoadedModel | None = None,
    opened: Callable[..., SavingBackend] = SavingBackend,
) -> events.EventsThen[LoadedModel]:
    """Load one model and make its context, reporting the progress. `cancel` will be asked within slow passes.

    `tell` takes how many tokens of a prompt are read. A draft head is loaded for its `target`. `opened` makes the
    context of any other model.
    """
    info, shape, began = looked.info, looked.context_shape(), time.perf_counter()

    def loaded(report: Callable[[float], None]) -> Model:
        size = looked.header.size
        if info.head is None or target is None:
            return Model(info.path, options, on_progress=report, n_bytes=size, shape=shape)
        traits = head_traits(info.head)
        return HeadModel(info.path, traits, target.model, options, on_progress=report, n_bytes=size, shape=shape)

    loading = events.Returning(reported(loaded))
    last = -1.0
    for fraction in loading:
        if fraction - last >= 0.02 or fraction == 1.0:
            last = fraction
            yield events.Loading(what, fraction)
    model = loading.result
    with closed_on_error(model):
        if isinstance(model, HeadModel) and target is not None:
            backend: LlamaBackend = open_head(model, target.backend, options)
        else:
            backend = opened(model, options, cancel, tell)
        seconds = time.perf_counter() - began
        return LoadedModel(info, model, backend, special_texts(model), 1e3 * seconds)


def head_traits(head: HeadInfo) -> HeadTraits:
    tap = Tap(head.target_width, head.target_layers)
    encoded = encoder_width(head.kind, head.target_width, head.n_guesses)
    return HeadTraits(head.kind, tap, encoded, head.n_guesses, head.borrows)


SHORT_DRAFT = "the draft model reads at most {} tokens: beyond them decoding is plain"


def lengthened(request: Request, n: int, target: LoadedModel, drafts: Sequence[LoadedModel]) -> tuple[str, ...]:
    before = target.backend.capabilities.n_ctx
    n_ctx = fitting(request, n, before, target.info.n_ctx_train)
    while n_ctx > before:
        try:
            target.backend.lengthen(n_ctx)
            break
        except ResourceError:
            n_ctx //= 2
    if n_ctx <= before:
        return ()
    for draft in drafts:
        with suppress(ResourceError):  # beyond its context decoding is plain
            if draft.kind == "model":
                draft.backend.lengthen(max(draft.backend.capabilities.n_ctx, min(n_ctx, draft.info.n_ctx_train)))
    warning = f"the context has {n_ctx} tokens from here on, since the text needs more than {before}"
    limit = drafts[0].backend.capabilities.n_ctx if drafts else n_ctx
    return (warning,) if limit >= n_ctx else (warning, SHORT_DRAFT.format(limit))
