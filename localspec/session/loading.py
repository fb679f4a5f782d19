"""`load`: settings become a loaded pair. The files are checked first, then both models are placed and loaded."""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from localspec import __version__
from localspec.backends.amx import WITHOUT_AMX, is_amx_broken
from localspec.backends.batch import ignored
from localspec.backends.build import build_info
from localspec.backends.limits import allowed, read
from localspec.backends.passes import Passes
from localspec.backends.rpc import add_servers
from localspec.backends.saved_state import SavingBackend
from localspec.engine import events
from localspec.engine.protocols import Cancel, Clock
from localspec.engine.translation import Intersection
from localspec.errors import ResourceError
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.info import check_adapter
from localspec.models.pair_check import require_fit
from localspec.models.recent import another_file
from localspec.prompt.chat_template import template_warnings
from localspec.prompt.grammar import Grammars
from localspec.prompt.renderer import RENDERER
from localspec.session.beside import opening, side_by_side
from localspec.session.controllers import PairController, remembered
from localspec.session.exact_widths import known_widths
from localspec.session.exit_drafts import EarlyExitDraft
from localspec.session.loaded_model import (
    SHORT_DRAFT,
    LoadedModel,
    closed_on_error,
    inspect_model,
    load_model,
    own_head,
)
from localspec.session.loaded_pair import LoadedPair
from localspec.session.placement import PairFiles
from localspec.session.prompt_states import PromptStates
from localspec.session.trial import DraftTrial
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import counted, size

STATUS = Path("/proc/self/status")

Tell = Callable[[events.Event], None]


@dataclass(frozen=True, slots=True)
class _Models:
    """Both models in memory, and the warnings of their placement."""

    target: LoadedModel
    draft: LoadedModel | None
    warnings: tuple[str, ...]

    def close(self) -> None:
        if self.draft is not None:
            self.draft.close()
        self.target.close()


def load(
    settings: LoadSettings,
    cancel: Cancel,
    clock: Clock = time.perf_counter,
    tell: Tell = ignored,
    others: Sequence[tuple[Cancel, Tell]] = (),
) -> events.EventsThen[LoadedPair]:
    """Check the files, load the pair, report that, and return it. `cancel` is read between passes and inside prefill.

    `tell` takes the events that happen in the middle of a long call of the pair: how far a prompt is read. `others`
    are the same for answers beside it, for which the pair returns with others (`LoadedPair.beside`).
    Nothing stays loaded where this raises or is dropped before its end.
    """
    began = clock()
    RENDERER.start()  # it is ready once the models are
    if settings.rpc:
        add_servers(settings.rpc)
    files = _checked(settings)
    early_exit = EarlyExitDraft(settings)
    is_alone = files.draft is None and settings.verifier is None
    warnings = files.warnings + (early_exit.find(files) if is_alone else ())
    passes = Passes() if others and settings.verifier is None else None
    if settings.verifier is None:
        models = yield from _load_models(files, cancel, tell, passes, 1 + len(others))
    else:
        models = yield from _load_edge(files, cancel, tell)
    with closed_on_error(models):
        pair = yield from _prepared(files, models, early_exit, cancel, clock)
        if passes is not None:
            pair = yield from side_by_side(pair, passes, others)
        for warning in (*warnings, *_load_warnings(files, models)):
            yield events.Warned("pair", warning)
        yield pair.loaded(1e3 * (clock() - began), versions())
        return pair


def _checked(settings: LoadSettings) -> PairFiles:
    """Read the headers and compare them, before llama.cpp sees a file. Raises IncompatibleError for a misfit."""
    is_edge = settings.verifier is not None
    if is_edge:
        from localspec.session.remote_target import inspect_vocabulary, require_edge  # late: few pairs have a verifier

        target = inspect_vocabulary(settings)
    else:
        target = inspect_model(settings.target)
    for path, _ in settings.lora:
        check_adapter(Path(path), target.header)
    draft = None
    if settings.draft is not None:
        has_own = not is_edge and target.info.has_mtp and os.path.samefile(settings.draft, settings.target)
        draft = target if has_own else inspect_model(settings.draft, may_be_head=True)
    report = None if draft is None or draft is target else require_fit(target.info, draft.info)
    if is_edge:
        require_edge(settings, None if draft is None else draft.info)
    files = PairFiles(settings, target, draft, report=report)
    return replace(files, warnings=tuple(_file_warnings(files)))


def _load_models(
    files: PairFiles, cancel: Cancel, tell: Tell, passes: Passes | None, n_lanes: int
) -> events.EventsThen[_Models]:
    """Load both models. With mask tokens it is the target with them, which is told as the target's own file."""
    head = None if files.draft is None else files.draft.info.head
    if files.draft is None or head is None or head.kind != MASKS:
        return (yield from _load_placed(files, cancel, tell, passes, n_lanes))
    from localspec.heads.mask_file import with_masks  # late: a start without masks does not need it

    target = files.target.info
    masked = inspect_model(str(with_masks(files.target.header, files.draft.header)))
    files = replace(files, target=masked, draft=None, n_masks=head.n_guesses)
    models = yield from _load_placed(files, cancel, tell, passes, n_lanes)
    return replace(models, target=replace(models.target, info=target))


def _load_edge(files: PairFiles, cancel: Cancel, tell: Tell) -> events.EventsThen[_Models]:
    from localspec.session.remote_target import open_remote  # late, as above

    target = open_remote(files.settings, files.target, cancel, tell)
    if files.draft is None:
        return _Models(target, None, ())
    with closed_on_error(target):
        placed = PairFiles(files.settings, files.draft).placed()
        drafting = yield from load_model(files.draft, placed.target, "draft", cancel)
        return _Models(target, drafting, placed.warnings)


def _load_placed(
    files: PairFiles, cancel: Cancel, tell: Tell, passes: Passes | None, n_lanes: int
) -> events.EventsThen[_Models]:
    """Load both models where they are to go.

    Where the memory that was counted on is not there, one step smaller is tried. The error then says what is missing.
    """
    target, draft = files.target, files.draft
    placed = files.placed()
    has_head = files.has_own_head or (draft is not None and draft.info.head is not None)
    opened = SavingBackend if passes is None else opening(passes, n_lanes, is_shared=not has_head)
    apart = SavingBackend if passes is None else opening(passes, n_lanes, is_shared=False)
    while True:
        try:
            loaded = yield from load_model(
                target, placed.target, "target", cancel, lambda n: tell(events.Reading(n)), opened=opened
            )
            if placed.draft is None or draft is None:
                return _Models(loaded, None, placed.warnings)
            with closed_on_error(loaded):
                if files.has_own_head:
                    return _Models(loaded, own_head(loaded, target), placed.warnings)
                drafting = yield from load_model(draft, placed.draft, "draft", cancel, target=loaded, opened=apart)
                return _Models(loaded, drafting, placed.warnings)
        except ResourceError as error:
            placed = placed.smaller(error)


def _prepared(
    files: PairFiles, models: _Models, early_exit: EarlyExitDraft, cancel: Cancel, clock: Clock
) -> events.EventsThen[LoadedPair]:
    settings, target, draft = files.settings, models.target, models.draft
    controllers = PairController.of(settings, target, draft, clock)
    widths: tuple[int, ...] = ()
    if settings.reproducible:
        profile = controllers.profile if draft is None else remembered([target], settings)
        widths = yield from known_widths(profile, target.backend, clock, cancel)
    translation = None
    if draft is not None and files.report is not None and files.report.overlap is not None:
        translation = Intersection(target.lexicon(), draft.lexicon())
    if draft is not None and settings.verifier is None:  # a trial reads the target's rows
        yield from DraftTrial(target, draft, translation, clock, cancel).learn(controllers.profile)
    states = PromptStates(settings)
    grammars = Grammars(holds_calls=settings.verifier is None)
    return LoadedPair(
        settings, target, draft, early_exit, controllers, cancel, clock, states, widths, translation, grammars=grammars
    )


def _file_warnings(files: PairFiles) -> Iterator[str]:
    settings, target, draft = files.settings, files.target.info, files.draft
    if draft is not None and files.report is not None:
        yield from files.report.warnings
        made_for = "" if draft.info.head is None else draft.info.head.trained_for
        if made_for not in ("", file_fingerprint(target.path)):  # another quantisation, for example
            yield f"the head was trained for another file than {target.label}: fewer guesses may be accepted"
        if files.report.overlap is None:
            yield from template_warnings(target.chat_template, draft.info.chat_template)
    if warning := another_file(settings):
        yield warning
    if is_amx_broken():
        yield f"llama.cpp crashes with AMX here, so AMX is off, which is slower; to rebuild it: {WITHOUT_AMX}"
    asked = {"--gpu": settings.gpu, "--draft-gpu": settings.draft_gpu}
    idle = [flag for flag, layers in asked.items() if layers not in ("auto", "off")]
    if idle and not build_info().gpu_offload:
        yield f"this build of llama.cpp has no GPU support, so {idle[0]} does nothing: see localspec --version"
    if settings.ctx is not None and settings.ctx > target.n_ctx_train:
        yield f"the model was made for {target.n_ctx_train} tokens; longer texts lose quality"
    n_processors = len(allowed())
    if 0 < n_processors < (settings.threads or 0):
        shared = counted(n_processors, "processor")
        yield f"{settings.threads} threads share {shared}, which is slow; leave out --threads"


def _load_warnings(files: PairFiles, models: _Models) -> Iterator[str]:
    yield from models.warnings
    settings, target, draft = files.settings, models.target, models.draft
    if draft is not None and draft.backend.capabilities.n_ctx < target.backend.capabilities.n_ctx:
        yield SHORT_DRAFT.format(draft.backend.capabilities.n_ctx)
    asked, held = target.model.options.rollback, target.backend.options.rollback
    if held != asked:
        yield f"memory holds the states of {held} drafted tokens instead of {asked}: drafts are no longer than that"
    # The kernel says how much is locked; weights on a GPU need no lock.
    locked = re.search(r"^VmLck:\s*(\d+) kB$", read(STATUS), re.MULTILINE)
    is_on_gpu, whole = settings.gpu != "off" and build_info().gpu_offload, files.target.info.bytes
    if settings.mlock and locked is not None and not is_on_gpu and 1024 * int(locked[1]) < whole // 2:
        yield f"--mlock: the system locks only {size(1024 * int(locked[1]))} of {size(whole)}; ulimit -l sets it"


def versions() -> dict[str, str]:
    build = build_info()
    return {"localspec": __version__, "llama_cpp_python": build.llama_cpp_python, "llama_cpp": build.llama_cpp}
