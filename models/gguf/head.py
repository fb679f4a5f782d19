"""Draft heads in GGUF: EAGLE-3, EAGLE-1, Medusa, DFlash, and blocks that predict further tokens (MTP), in own files.

A head reads hidden states of the target it was trained for. It writes no text by itself. EAGLE-1 and Medusa heads of
localspec have the architecture of EAGLE-3, whose vocabulary can be reduced, and say their kind in
`localspec.head.kind`. So do mask tokens, which are no head: the target itself guesses on their rows.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.errors import IncompatibleError
from localspec.models.gguf.architectures import MTP_ARCHS
from localspec.models.gguf.draft_kinds import DFLASH, EAGLE1, EAGLE3, MASKS, MEDUSA, MTP
from localspec.models.gguf.header import Header, unusable

SWITCH = "graniteswitch"  # the architecture whose LoRA adapters act on some rows of a pass alone
N_STATES = 3  # that the encoder of the architecture eagle3 joins
Q8_BLOCK = 32  # numbers
_KIND, _GUESSES = "localspec.head.kind", "localspec.head.guesses"
_VARIANTS = {"markov_w1.weight": "DSpark", "selector_hidden.weight": "DFlash2"}  # they do not guess by marginals alone


@dataclass(frozen=True)
class HeadInfo:
    """A head as its file describes it.

    `kind` is one of `KINDS`. `target_width` is the width of the target, `target_layers` the layers whose inputs it
    reads; without any it reads the state after the last norm. `n_guesses` are the tokens that a Medusa head, a DFlash
    head or masks guess at once. `borrows`: the file lacks the embedding or the output matrix, and takes the target's;
    `borrows_output` speaks of the latter. `trained_for` is the fingerprint of the target's file, "" if unknown.
    `accepted[k - 1]` is the share of places in held-out text where the first k guesses were all the target's, as the
    training counted it.
    """

    kind: str
    target_width: int
    target_layers: tuple[int, ...] = ()
    n_guesses: int = 0
    borrows: bool = False
    borrows_output: bool = False
    trained_for: str = ""
    accepted: tuple[float, ...] = ()


def head_info(header: Header) -> HeadInfo | None:
    """Return what the file says of a head, None for other files. Raises IntegrityError for a head that lacks a key."""
    head = _head(header)
    if head is None:
        return None
    return replace(
        head,
        borrows_output=header.names.isdisjoint(("output.weight", "token_embd.weight")),
        trained_for=header.text("localspec.head.target_fingerprint"),
        accepted=_accepted(header),
    )


def _head(header: Header) -> HeadInfo | None:
    arch = header.architecture
    if arch == EAGLE3:
        return _eagle(header)
    if arch == DFLASH:
        return _dflash(header)
    if arch == SWITCH:
        return _masks(header)
    n_layers, n_next = (header.number(f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if not 1 <= n_next <= n_layers:
        return None
    if n_layers > n_next and "blk.0.attn_norm.weight" in header.names:  # it has a trunk
        return None
    return HeadInfo(MTP, _number(header, f"{arch}.embedding_length"))


def encoder_width(kind: str, target_width: int, n_guesses: int = 0) -> int:
    """Return the numbers in a row that a head's encoder reads, 0 for a head without one."""
    if kind in (EAGLE3, EAGLE1):
        return N_STATES * target_width
    whole = N_STATES * Q8_BLOCK
    return -(-n_guesses * target_width // whole) * whole if kind == MEDUSA else 0


def has_own_head(header: Header) -> bool:
    arch = header.architecture
    n_layers, n_next = (header.number(f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    block = f"blk.{n_layers - n_next}.nextn.eh_proj.weight"
    return arch in MTP_ARCHS and 1 <= n_next < n_layers and block in header.names


def _eagle(header: Header) -> HeadInfo:
    layers = header.metadata.get("eagle3.target_layers")
    if not isinstance(layers, Sequence) or isinstance(layers, str) or len(layers) != N_STATES:
        raise unusable(header, f"eagle3.target_layers does not name {N_STATES} layers of the target")
    if header.metadata.get(_KIND) == MEDUSA:
        return _medusa(header)
    kind = EAGLE1 if header.metadata.get(_KIND) == EAGLE1 else EAGLE3
    return HeadInfo(
        kind=kind,
        target_width=_number(header, "eagle3.target_hidden_size"),
        target_layers=tuple(map(int, layers)) if kind == EAGLE3 else (),
        borrows=not {"token_embd.weight", "output.weight"} <= header.names,
    )


def _medusa(header: Header) -> HeadInfo:
    """The matrices of its heads lie side by side in that of the encoder."""
    width, n_guesses = _number(header, "eagle3.embedding_length"), _number(header, _GUESSES)
    if N_STATES * _number(header, "eagle3.target_hidden_size") != encoder_width(MEDUSA, width, n_guesses):
        raise unusable(header, f"its encoder does not hold {n_guesses} matrices of {width} columns")
    return HeadInfo(MEDUSA, width, n_guesses=n_guesses, borrows=True)


def _dflash(header: Header) -> HeadInfo:
    for name, variant in _VARIANTS.items():
        if name in header.names:
            message = f"{header.name} is a {variant} head, which localspec does not run"
            raise IncompatibleError(message, hint="a DFlash or an EAGLE-3 head")
    layers = header.metadata.get("dflash.target_layers")
    if not isinstance(layers, Sequence) or isinstance(layers, str) or not layers:
        raise unusable(header, "dflash.target_layers names no layers of the target")
    if "tokenizer.ggml.mask_token_id" not in header.metadata:
        raise unusable(header, "the metadata key tokenizer.ggml.mask_token_id is missing")
    return HeadInfo(
        kind=DFLASH,
        target_width=_number(header, "dflash.embedding_length"),
        target_layers=tuple(map(int, layers)),
        n_guesses=_number(header, "dflash.block_size") - 1,
        borrows="token_embd.weight" not in header.names,
    )


def _masks(header: Header) -> HeadInfo | None:
    if header.metadata.get(_KIND) != MASKS:
        return None
    return HeadInfo(
        kind=MASKS,
        target_width=_number(header, f"{SWITCH}.embedding_length"),
        n_guesses=_number(header, _GUESSES),
    )


def _accepted(header: Header) -> tuple[float, ...]:
    value = header.metadata.get("localspec.head.accepted")
    if not isinstance(value, array) or not all(0.0 <= share <= 1.0 for share in value):
        return ()
    return tuple(map(float, value))


def _number(header: Header, key: str) -> int:
    value = header.number(key)
    if value < 1:
        raise unusable(header, f"the metadata key {key} is missing or is no width")
    return value
