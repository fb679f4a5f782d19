"""Does this draft fit this target, and if not, why: answered from the two headers, before anything loads.

Two models have the same vocabulary by the rules of `common_speculative_are_compatible` in llama.cpp's
common/speculative.cpp. A draft model of another vocabulary drafts with the tokens that both have; a head cannot.
"""

from dataclasses import dataclass
from functools import lru_cache

from localspec.errors import IncompatibleError
from localspec.models.gguf.architectures import TAPPABLE, UNTOLD_LAST
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.head import HeadInfo
from localspec.models.gguf.info import ModelInfo
from localspec.models.gguf.values import Strings
from localspec.models.gguf.vocab import held
from localspec.models.overlap import MIN_SHARED, Overlap, overlap
from localspec.sanitize import quoted, shown

MAX_SIZE_DIFFERENCE = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE: padding to a round size is harmless
FIRST_TOKEN = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID: the first few are special tokens that are often renamed
_SHOWN_DIFFERENCES = 5


@dataclass(frozen=True)
class TokenDifference:
    token: int
    target: bytes
    draft: bytes

    def __str__(self) -> str:
        return f"token {self.token} is {quoted(self.target)} in the target and {quoted(self.draft)} in the draft"


@dataclass(frozen=True)
class PairReport:
    """Whether a draft fits a target: `reasons` say why not, `warnings` what may cost acceptance. `overlap` is that of
    vocabularies that differ, None where they are the same; `differs` says in which ways. `differences` are the first
    few tokens that differ, `n_different` is how many differ in all."""

    target: str
    draft: str
    reasons: tuple[str, ...]
    warnings: tuple[str, ...]
    differences: tuple[TokenDifference, ...] = ()
    n_different: int = 0
    overlap: Overlap | None = None
    differs: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.reasons


def check_pair(target: ModelInfo, draft: ModelInfo) -> PairReport:
    """Compare the tokenizers of two models by llama.cpp's rules, and what else a head needs of its target."""
    n_different, different = _different_tokens(target.vocab.tokens, draft.vocab.tokens)
    differs = _differences(target, draft, n_different, different)
    shared = overlap(target.vocab, draft.vocab) if differs and draft.head is None else None
    reasons = _too_few(shared, differs) if draft.head is None else [*_head_reasons(target, draft.head), *differs]
    return PairReport(
        target=target.label,
        draft=draft.label,
        reasons=tuple(reasons),
        warnings=tuple(_warnings(target, draft, shared)),
        differences=different,
        n_different=n_different,
        overlap=shared,
        differs=tuple(differs),
    )


def require_fit(target: ModelInfo, draft: ModelInfo) -> PairReport:
    """Return the report of two models that fit; raise IncompatibleError with the first reason if they do not."""
    report = check_pair(target, draft)
    if report.fits:
        return report
    other = "a smaller model of the target's own family as the draft" if draft.head is None else "a head of this target"
    raise IncompatibleError(
        f"the draft {report.draft} does not fit the target {report.target}: {report.reasons[0]}",
        hint=f"use {other}, or none with: --draft none",
        detail={
            "reasons": list(report.reasons),
            "differences": [
                {"token": difference.token, "target": shown(difference.target), "draft": shown(difference.draft)}
                for difference in report.differences
            ],
        },
    )


def _differences(
    target: ModelInfo, draft: ModelInfo, n_different: int, different: tuple[TokenDifference, ...]
) -> list[str]:
    begin = (target.vocab.add_bos, target.vocab.bos), (draft.vocab.add_bos, draft.vocab.bos)
    end = (target.vocab.add_eos, target.vocab.eos), (draft.vocab.add_eos, draft.vocab.eos)
    kinds, difference = (target.vocab.type, draft.vocab.type), abs(target.n_vocab - draft.n_vocab)
    return [
        *([] if kinds[0] == kinds[1] else [f"their tokenizers are of different kinds, {kinds[0]} and {kinds[1]}"]),
        *_special_reasons("BOS", "begins", *begin),
        *_special_reasons("EOS", "ends", *end),
        *(
            [
                f"their vocabularies have {target.n_vocab} and {draft.n_vocab} tokens, "
                f"a difference of {difference} (at most {MAX_SIZE_DIFFERENCE})"
            ]
            if difference > MAX_SIZE_DIFFERENCE
            else []
        ),
        *([f"{different[0]}; {n_different} of their tokens differ"] if different else []),
    ]


def _too_few(shared: Overlap | None, differs: list[str]) -> list[str]:
    if shared is None or not shared.is_slight:
        return []
    few = (
        f"they share {shared.shared} of the target's {shared.n_target} tokens, and {100 * MIN_SHARED:.0f} % are needed"
    )
    return [few, *differs]


def _head_reasons(target: ModelInfo, head: HeadInfo) -> list[str]:
    reasons = []
    if head.kind == MASKS and target.architecture != "llama":
        reasons.append(f"mask tokens need a target of the architecture llama, not {shown(target.architecture)}")
    if head.target_width != target.n_embd:
        reasons.append(f"the head reads states of {head.target_width} numbers, and the target's have {target.n_embd}")
    if any(not 0 <= layer < target.n_layer for layer in head.target_layers):
        named = ", ".join(map(str, head.target_layers))
        reasons.append(f"the head reads the layers {named}, and the target has the layers 0 to {target.n_layer - 1}")
    if head.target_layers and target.architecture not in TAPPABLE:
        reasons.append(f"llama.cpp does not tell the layers of {target.architecture} models")
    if not head.target_layers and target.architecture in UNTOLD_LAST:
        reasons.append(f"llama.cpp does not tell the last state of {target.architecture} models")
    return reasons


def _special_reasons(
    name: str, verb: str, target: tuple[bool, int | None], draft: tuple[bool, int | None]
) -> list[str]:
    if target[0] != draft[0]:
        which = "target" if target[0] else "draft"
        return [f"only the {which} {verb} a text with its {name} token"]
    if target[0] and target[1] != draft[1]:
        return [f"their {name} tokens differ, {target[1]} in the target and {draft[1]} in the draft"]
    return []


@lru_cache(maxsize=16)  # drafts of a family have the same vocabulary
def _different_tokens(target: Strings, draft: Strings) -> tuple[int, tuple[TokenDifference, ...]]:
    if target == draft:
        return 0, ()
    both = zip(target, draft, strict=False)
    # The raw texts first: the rules for empty texts and zero bytes matter only where these differ.
    suspects = [token for token, (ours, theirs) in enumerate(both) if token >= FIRST_TOKEN and ours != theirs]
    different = [token for token in suspects if held(token, target[token]) != held(token, draft[token])]
    first = different[:_SHOWN_DIFFERENCES]
    return len(different), tuple(TokenDifference(n, held(n, target[n]), held(n, draft[n])) for n in first)


def _warnings(target: ModelInfo, draft: ModelInfo, shared: Overlap | None) -> list[str]:
    warnings = []
    if shared is not None:
        warnings.append(f"the draft has another vocabulary: it drafts {shared}, so fewer guesses may be accepted")
    elif target.vocab.pre != draft.vocab.pre:
        pres = f"{shown(target.vocab.pre) or 'none'} and {shown(draft.vocab.pre) or 'none'}"
        warnings.append(f"their pre-tokenizers differ ({pres}), so fewer guesses may be accepted")
    # A copy in fewer bits is none of these; no parameters: the weights are on another machine.
    if draft.n_params >= target.n_params > 0 and draft.bytes >= target.bytes:
        warnings.append(
            f"the draft has as many parameters as the target or more ({draft.n_params} and {target.n_params}), "
            "so drafting will not save time"
        )
    return warnings
