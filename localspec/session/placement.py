"""From settings, headers and this machine's devices to how each model is loaded: planned where there is a choice.

Without a device other than the CPU nothing is planned, and nothing that planning needs is imported. A load that fails
for memory goes on with the next smaller step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from localspec.backends.devices import Device, devices, offloading
from localspec.backends.limits import available_memory, physical_cores
from localspec.backends.memory import ContextShape, attention_for, context_bytes
from localspec.backends.options import LoadOptions, Placement, wants_flash
from localspec.errors import ResourceError
from localspec.models.gguf.architectures import ROLLS_BACK
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo
from localspec.models.gguf.layer_sizes import Layer, anatomy
from localspec.models.pair_check import PairReport
from localspec.settings.folders import cache_folder
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import size
from localspec.trees.budget import MAX_LEAVES
from localspec.tuning import DEFAULT_CTX, MARGIN_RAM, ROLLBACK, SMALLEST_CTX

if TYPE_CHECKING:
    from localspec.models.plan.layout_search import PlacementPlan
    from localspec.models.plan.machine import Machine
    from localspec.models.plan.memory_use import Layout
    from localspec.models.plan.models import Models

STEP = 0.8  # of the devices' memory, for the second try
CLEARLY = 0.95  # of the time: a prediction that is closer says nothing
PAGED = "the models and their contexts exceed the free memory: weights are read from the disk in every pass"
UNKNOWN_RAM = 1 << 62  # bytes, where the system does not say what is free: then only devices limit


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """A model's file, looked at."""

    header: Header
    info: ModelInfo

    def context_shape(self) -> ContextShape:
        parts = anatomy(self.header)
        return _shape(parts.layers, parts.n_heads)

    def block_shape(self) -> ContextShape:
        parts = anatomy(self.header)
        return _shape(parts.layers[-parts.n_next :], parts.n_heads)


def _shape(layers: Sequence[Layer], n_heads: int) -> ContextShape:
    values = [layer.v_entries for layer in layers]
    return ContextShape(
        k_entries=sum(layer.k_entries for layer in layers),
        v_entries=sum(values),
        n_heads=n_heads,
        padded=max(values) * sum(n > 0 for n in values),
        state=sum(layer.state for layer in layers),
    )


@dataclass(frozen=True, slots=True)
class PairFiles:
    """What is to be loaded: the settings, and the files that they name, looked at.

    A draft that is the target stands for the target's own block for further tokens. `n_masks` tokens of the target are
    masks. `report` compares target and draft, None where there is no second file. `warnings` are of the files.
    """

    settings: LoadSettings
    target: InspectedModel
    draft: InspectedModel | None = None
    n_masks: int = 0
    report: PairReport | None = None
    warnings: tuple[str, ...] = ()

    @property
    def has_own_head(self) -> bool:
        return self.draft is self.target

    def placed(self) -> Placed:
        """Return how to load the pair: by a plan where a device other than the CPU is there and --gpu is auto."""
        gpus = offloading(devices()) if self.settings.gpu == "auto" else ()
        return self.planned(gpus, None) if gpus else self.unplanned()

    def target_options(self, placement: Placement | None = None, n_ctx: int | None = None) -> LoadOptions:
        """Return how the target is loaded: with its LoRA adapters, and a way back for a model that keeps a state.

        With --reproducible it has flash attention, unless that was switched off.
        """
        settings = self.settings
        options = replace(
            load_options(settings, settings.gpu if placement is None else "auto", placement, n_ctx),
            adapters=settings.lora,
            rollback=ROLLBACK if self.target.info.architecture in ROLLS_BACK else 0,
            keeps_prompt=True,
            has_mtp=self.has_own_head,
            n_masks=self.n_masks,
        )
        if not settings.reproducible:
            return options
        flash_attn = "on" if settings.flash_attn == "auto" else settings.flash_attn
        return replace(options, reproducible=True, flash_attn=flash_attn)

    def fits_memory(self) -> bool:
        """Whether main memory holds both, as far as they go there; asked before either is loaded."""
        return not self._exceeds_memory(self.target_options(), load_options(self.settings, self.settings.draft_gpu))

    def unplanned(self, warnings: tuple[str, ...] = ()) -> Placed:
        settings, target = self.settings, self.target_options()
        draft: LoadOptions | None = None
        if self.draft is not None:
            # What it was not trained for it cannot guess. None is decided where the context is opened.
            n_ctx = None if settings.ctx is None else min(settings.ctx, self.draft.info.n_ctx_train or settings.ctx)
            draft = load_options(settings, settings.draft_gpu, n_ctx=n_ctx)
        if settings.mmap and self._exceeds_memory(target, draft):
            # Rearranged weights are a copy, which the system cannot drop and read again.
            target, warnings = replace(target, repack=False), (*warnings, PAGED)
            draft = None if draft is None else replace(draft, repack=False)
        return Placed(self, target, draft, warnings)

    def _exceeds_memory(self, target: LoadOptions, draft: LoadOptions | None) -> bool:
        available, has_devices = available_memory(), bool(offloading(devices()))
        if available is None or (target.gpu != "off" and has_devices):
            return False
        needed = self.target.header.size + _context_bytes(self.target, target)
        other = None if self.has_own_head else self.draft
        if other is not None and draft is not None and (draft.gpu == "off" or not has_devices):
            needed += other.header.size + _context_bytes(other, draft)
        return needed > (1 - MARGIN_RAM) * available

    def planned(self, gpus: Sequence[Device], failed: ResourceError | None) -> Placed:
        """Plan the pair for the devices `gpus`, after a failure with less of their memory."""
        from localspec.models.plan.layout_search import PlacementRequest, best_and_plain
        from localspec.models.plan.models import ModelPart, placed

        settings = self.settings
        models = placed(
            *(ModelPart.of(each.header, each.info) for each in (self.target, self.draft) if each is not None)
        )
        request = PlacementRequest(
            n_ctx=settings.ctx,
            kv_type=settings.kv_type,
            # Contexts whose scores would be too large get it too, but their size is not known yet.
            has_flash=wants_flash(self.target_options().flash_attn, settings.kv_type, has_gpu=bool(gpus)),
            is_mapped=settings.mmap,
            needs_draft=True,
            threads=settings.threads,
            draft_gpu=settings.draft_gpu,
        )
        plan, plain = best_and_plain(machine(gpus, 1.0 if failed is None else STEP), models, request)
        draft = None
        if plan.draft is not None and plan.draft_context is not None:
            placement = _placement(plan, plan.draft)
            draft = load_options(settings, settings.draft_gpu, placement, plan.draft_context.n_ctx)
        return Placed(
            self,
            self.target_options(_placement(plan, plan.target), plan.context.n_ctx),
            draft,
            _doubts(plan, plain, models, settings.draft_gpu, failed),
            plan,
            is_last=failed is not None,
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """How the files of a pair are loaded now, and what is left to try after that.

    `plan` is None where nothing was planned. `is_last`: nothing is left.
    """

    files: PairFiles
    target: LoadOptions
    draft: LoadOptions | None
    warnings: tuple[str, ...] = ()
    plan: PlacementPlan | None = None
    is_last: bool = False

    def smaller(self, error: ResourceError) -> Placed:
        """Return the next smaller step after `error`; raises ResourceError, with what is missing, after the last."""
        files = self.files
        if self.is_last:
            raise self._explained(error) from error
        if self.plan is not None:
            return files.planned(offloading(devices()), error)
        default = min(files.target.info.n_ctx_train or DEFAULT_CTX, DEFAULT_CTX)
        fitting = error.detail.get("fitting_n_ctx", default // 2)
        if files.settings.ctx is not None or not isinstance(fitting, int) or not SMALLEST_CTX <= fitting < default:
            raise error  # a context that was asked for is not cut
        files = replace(files, settings=replace(files.settings, ctx=fitting))
        return replace(files.unplanned((f"{error.message}: the context is cut to {fitting} tokens",)), is_last=True)

    def _explained(self, error: ResourceError) -> ResourceError:
        plan = self.plan
        if plan is None:
            return error
        free = {device.name: device.free for device in devices()} | {"CPU": available_memory() or UNKNOWN_RAM}
        needs = {place: use.allocated if place == "CPU" else use.total for place, use in plan.use.items()}
        short = {place: needs[place] - free.get(place, 0) for place in needs}
        # Where nothing seems short, a device had less to give than it said.
        worst = max(short, key=lambda place: (max(0, short[place]), place in plan.target.devices, place))
        missing = f"{size(short[worst])} missing" if short[worst] > 0 else "though less can be had at once"
        message = f"{worst} needs {size(needs[worst])} and {size(max(0, free.get(worst, 0)))} are free, {missing}"
        return ResourceError(
            f"{error.message}; {message}",
            hint=f"--gpu off, a smaller --ctx, or {'--draft none' if self.files.settings.draft else 'a smaller model'}",
            detail={**error.detail, "needed_bytes": needs, "free_bytes": free, "missing_bytes": max(0, short[worst])},
        )


def load_options(
    settings: LoadSettings, gpu: str, placement: Placement | None = None, n_ctx: int | None = None
) -> LoadOptions:
    return LoadOptions(
        n_ctx=n_ctx or settings.ctx,
        threads=settings.threads,
        gpu=gpu,
        kv_type=settings.kv_type,
        flash_attn=settings.flash_attn,
        mmap=settings.mmap,
        mlock=settings.mlock,
        max_leaves=MAX_LEAVES,
        placement=placement,
    )


def machine(offloaded: Sequence[Device], share: float = 1.0) -> Machine:
    """Describe this machine with `share` of its devices' free memory, and with the rates that were measured of it."""
    from localspec.models.plan import calibration
    from localspec.models.plan.machine import Machine
    from localspec.models.plan.machine import MachineDevice as Place

    measured = calibration.load(cache_folder("machine"))
    cpu = next((device for device in devices() if device.name == "CPU"), None)
    ram = available_memory()
    return Machine(
        ram=UNKNOWN_RAM if ram is None else ram,
        cores=physical_cores(),
        devices=tuple(
            Place(
                device.name,
                int(device.free * share),
                None if measured is None else measured.rates(device.name, device.description),
                device.is_unified,
                device.is_remote,
                device.is_integrated,
            )
            for device in offloaded
        ),
        cpu=None if measured is None or cpu is None else measured.rates(cpu.name, cpu.description),
    )


def _context_bytes(looked: InspectedModel, options: LoadOptions) -> int:
    n_ctx = options.n_ctx or min(looked.info.n_ctx_train or DEFAULT_CTX, DEFAULT_CTX)
    shape = looked.context_shape()
    return context_bytes(shape, n_ctx, attention_for(shape, n_ctx, options, has_gpu=False))


def _placement(plan: PlacementPlan, layout: Layout) -> Placement:
    return Placement(layout.devices, layout.counts, layout.cpu_experts, is_repacked=not plan.is_paged)


def _doubts(
    plan: PlacementPlan, plain: PlacementPlan, models: Models, draft_gpu: str, failed: ResourceError | None
) -> tuple[str, ...]:
    doubts: tuple[str, ...] = ()
    if failed is not None:
        doubts += (f"{failed.message}: placed again, with less on the devices, {plan.target.in_words(models.target)}",)
    if models.draft is not None and plan.draft is None:
        where = "" if draft_gpu == "auto" else f" with --draft-gpu {draft_gpu}"
        doubts += (f"there is no memory for the draft model{where}: decoding without it",)
    elif plan.draft is not None and plan.tokens_per_s and plain.seconds < CLEARLY * plan.seconds:
        doubts += (
            f"by the measured bandwidths, {plain.target.in_words(models.target)} without the draft model would be "
            "faster, unless it is accepted more often than assumed; --draft none loads none",
        )
    if plan.is_paged:
        doubts += (PAGED,)
    return doubts
