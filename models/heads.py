"""Heads that were trained here: one folder of GGUF files, found again by the target that they were made for."""

from dataclasses import dataclass
from pathlib import Path

from localspec.errors import IncompatibleError, LocalspecError, NotFoundError
from localspec.models.gguf.draft_kinds import MASKS
from localspec.models.gguf.fingerprint import file_fingerprint
from localspec.models.gguf.head import HeadInfo, head_info
from localspec.models.gguf.shards import read_all, read_model
from localspec.sanitize import shown
from localspec.settings.folders import heads_folder

SUFFIX = ".gguf"


@dataclass(frozen=True)
class Head:
    """A head's file. `tokens` is the length of the training text and `steps` the updates, 0 for heads of others."""

    path: Path
    info: HeadInfo
    n_bytes: int
    tokens: int = 0
    steps: int = 0

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    @property
    def tokens_a_pass(self) -> float:
        """Return the tokens of a pass with as many guesses as were counted: those accepted, and the target's own."""
        return 1.0 + sum(self.info.accepted)


def read_head(path: Path) -> Head:
    """Describe the head in a file. Raises IncompatibleError where it holds none, and what `read_model` raises."""
    header = read_model(path)
    info = head_info(header)
    if info is None:
        raise IncompatibleError(f"{shown(str(path))} holds no draft head", hint="localspec heads list")
    return Head(
        path=path,
        info=info,
        n_bytes=header.size,
        tokens=header.number("localspec.head.tokens"),
        steps=header.number("localspec.head.steps"),
    )


def kept_heads() -> tuple[list[Head], list[tuple[Path, LocalspecError]]]:
    return read_all(heads_folder(), read_head)


def named_head(name: str) -> Path:
    path = heads_folder() / f"{name}{SUFFIX}"
    if Path(name).name == name and path.is_file():
        return path
    if Path(name).is_file():
        return Path(name)
    raise NotFoundError(f"there is no head {shown(name)}", hint="localspec heads list")


def head_for(target: Path, kind: str = "") -> Path | None:
    """Return the best head, or the best of a kind, that was trained here for exactly this file; None without one."""
    mark = file_fingerprint(target)
    heads = [head for head in kept_heads()[0] if head.info.trained_for == mark]
    fitting = [head for head in heads if (head.info.kind == kind if kind else head.info.kind != MASKS)]
    return max(fitting, key=lambda head: (head.tokens_a_pass, head.name)).path if fitting else None


def path_for(target: Path, kind: str) -> Path:
    return heads_folder() / f"{target.name.removesuffix(SUFFIX)}-{kind}-{file_fingerprint(target)[:8]}{SUFFIX}"
