"""The states of texts that were read before: in memory, and on disk where a person lets their text be kept.

Before an answer the longest start of its prompt wins among what the context holds, memory and disk. After an answer
its text is written where reading it back should be far quicker than evaluating it again. Both are measured.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.backends.lanes import Lane
from localspec.backends.limits import available_memory
from localspec.backends.saved_state import SavedState, SavingBackend, common_tokens
from localspec.engine import events
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.session.loaded_model import LoadedModel
from localspec.session.state_files import StateFile, StateFolder
from localspec.settings.folders import states_folder
from localspec.settings.request import LoadSettings, Request
from localspec.settings.sizes import read_size

QUICKER = 3.0  # times: so much faster than evaluating must reading back be, for a state to be written
WORTH = 0.05  # seconds that a state on disk saves at least
MIN_TOKENS = 32  # tokens: fewer are not worth a copy
MIN_DROPPED_SHARE = 1 / 8  # of a text: less than that of it is dropped without a copy
CERTAIN = 16  # tokens whose evaluation tells how long one takes
BUDGET = 1 / 4  # of the memory that is free once the models are loaded
UNKNOWN = 1 << 29  # bytes, where the system does not say how much is free
DAMAGED = "a saved state of the prompt was damaged and is gone: the prompt is read anew"


@dataclass(frozen=True, slots=True)
class _InMemory:
    """A state in memory, of the text of one backend."""

    backend: SavingBackend
    state: SavedState


class PromptStates:
    """The states that one loaded pair goes back to."""

    def __init__(self, settings: LoadSettings) -> None:
        limit = read_size("--cache-disk", settings.cache_disk)
        self._folder = StateFolder(states_folder(), limit) if limit else None
        self._budget = None if settings.cache_ram is None else read_size("--cache-ram", settings.cache_ram)
        self._in_memory: list[_InMemory] = []  # those used least recently first
        self._keys: dict[SavingBackend, bytes] = {}
        self._answered: list[LoadedModel] = []  # those whose text may be written, the target first
        self._seconds = 0.0  # to evaluate a token of the target; 0 while that is unknown

    def begin(self, request: Request, models: Sequence[LoadedModel], tokens: Sequence[int]) -> Iterator[events.Event]:
        """Let the `models`, the target first, hold the longest start of a prompt that was read before."""
        backends = [model.backend for model in models]
        self._answered = [each for each in self._answered if each.backend not in backends]
        if request.cold:
            return
        has_lost = False
        for model in models:
            backend = model.backend
            if isinstance(backend, SavingBackend) and backend.can_save:
                has_lost |= self._recall(model, backend, tokens, is_on_disk=request.keeps)
                self._answered += [model] if request.keeps and not request.reads_ahead else []
        if has_lost:
            yield events.Warned("state", DAMAGED)

    @property
    def n_bytes(self) -> int:
        backends = (model.backend for model in self._answered)
        return 0 if self._folder is None else sum(b.n_state_bytes for b in backends if isinstance(b, SavingBackend))

    def prefilled(self, event: events.Prefilled) -> None:
        n = event.prompt_n - event.cache_n
        if n >= CERTAIN or not self._seconds:
            self._seconds = event.ms / 1e3 / max(n, 1)

    def stow(self, model: LoadedModel, keeps: int = 0) -> None:
        """Copy into memory what a model holds of a text, of which only the first `keeps` tokens will stay."""
        backend = model.backend
        dropped = backend.length - keeps
        if dropped < max(MIN_TOKENS, MIN_DROPPED_SHARE * backend.length) or not isinstance(backend, SavingBackend):
            return
        if not backend.can_save or any(
            _usable(each, backend, backend.tokens) == backend.length for each in self._in_memory
        ):
            return
        if self._budget is None:
            free = available_memory()
            self._budget = UNKNOWN if free is None else int(BUDGET * free)
        if backend.n_state_bytes > self._budget:
            return
        state = backend.save()
        self._in_memory = [each for each in self._in_memory if not _is_start(each, backend, state)]
        self._in_memory.append(_InMemory(backend, state))
        while sum(each.state.n_bytes for each in self._in_memory) > self._budget:
            del self._in_memory[0]

    def idle(self, is_asked: Callable[[], bool]) -> None:
        """Write what the last answer left, as long as nobody asks for anything else."""
        models, self._answered = self._answered, []
        target = max((model.info.bytes for model in models), default=0)
        for model in models:
            if is_asked():
                self._answered.append(model)
            else:
                self._write(model, model.info.bytes / target)

    def _recall(self, model: LoadedModel, backend: SavingBackend, tokens: Sequence[int], *, is_on_disk: bool) -> bool:
        """Let a backend hold the longest start of `tokens`; return whether a file was damaged."""
        held, wanted = backend.cached(tokens), tokens[:-1]
        if isinstance(backend, Lane) and (other := backend.beside(tokens, held + MIN_TOKENS)) is not None:
            self.stow(model, held)
            copy = other.save()
            backend.restore(copy, backend.usable(copy.ends, copy.read, common_tokens(copy.tokens, wanted)))
            held = backend.cached(tokens)
        best = max(self._in_memory, key=lambda each: _usable(each, backend, wanted), default=None)
        n = 0 if best is None else _usable(best, backend, wanted)
        state = best.state if best is not None and n >= held + MIN_TOKENS else None
        length, has_lost = max(held, n if state is not None else 0), False
        for n, on_disk in self._on_disk(model, backend, wanted) if is_on_disk else ():
            assert self._folder is not None, "it is a file of the folder"
            gained = n - length
            if gained < MIN_TOKENS or gained * on_disk.seconds <= on_disk.n_bytes / self._folder.rate:
                break  # evaluating it again takes no longer
            stored = self._folder.load(on_disk, self._key(model, backend))
            if stored is not None:
                state, length = stored, n
                self._seconds = self._seconds or on_disk.seconds
                break
            has_lost = True
        self.stow(model, held if state is None else 0)
        if state is not None:
            self._in_memory.sort(key=lambda each: each.state is state)
            backend.restore(state, length)
        return has_lost

    def _write(self, model: LoadedModel, size: float) -> None:
        """Keep the text of a model on disk where that pays; `size` is the model's, in sizes of the target."""
        backend = model.backend
        assert isinstance(backend, SavingBackend), "others hold no text that can be saved"
        if self._folder is None:
            return
        seconds, rate = size * self._seconds, self._folder.rate
        covered = max((n for n, _ in self._on_disk(model, backend, backend.tokens)), default=0)
        gain = (backend.length - covered) * seconds
        if backend.length - covered >= MIN_TOKENS and gain >= max(WORTH, QUICKER * backend.n_state_bytes / rate):
            self._folder.write(self._key(model, backend), backend.save(), seconds)

    def _on_disk(
        self, model: LoadedModel, backend: SavingBackend, wanted: Sequence[int]
    ) -> list[tuple[int, StateFile]]:
        """Return the states on disk that a model could take, and how much of `wanted` each holds, the most first."""
        if self._folder is None:
            return []
        longest = backend.capabilities.n_ctx
        files = [each for each in self._folder.of_kind(self._key(model, backend)) if len(each.tokens) <= longest]
        return sorted(
            ((backend.usable(each.ends, each.read, common_tokens(each.tokens, wanted)), each) for each in files),
            key=lambda pair: -pair[0],
        )

    def _key(self, model: LoadedModel, backend: SavingBackend) -> bytes:
        if backend not in self._keys:
            adapters = [(file_fingerprint(Path(path)), scale) for path, scale in backend.options.adapters]
            named = repr((file_fingerprint(Path(model.model.path)), adapters, backend.facts))
            self._keys[backend] = hashlib.sha256(named.encode()).digest()
        return self._keys[backend]


def _usable(stored: _InMemory, backend: SavingBackend, wanted: Sequence[int]) -> int:
    if stored.backend.model is not backend.model:
        return 0
    state = stored.state
    return backend.usable(state.ends, state.read, common_tokens(state.tokens, wanted))


def _is_start(stored: _InMemory, backend: SavingBackend, state: SavedState) -> bool:
    n = len(stored.state.tokens)
    return stored.backend.model is backend.model and n == common_tokens(state.tokens, stored.state.tokens)
