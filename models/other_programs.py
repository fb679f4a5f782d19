"""Models that other programs keep: Ollama, LM Studio, llama.cpp's old cache, folders called models. Only read here.

    Ollama      OLLAMA_MODELS, ~/.ollama/models: manifests/HOST/SPACE/MODEL/TAG names blobs/sha256-HASH
    LM Studio   ~/.lmstudio/models/PUBLISHER/REPO/FILE.gguf, or the folder of its settings
    llama.cpp   LLAMA_CACHE, ~/.cache/llama.cpp: ORG_REPO_FILE.gguf, manifest=ORG=REPO=TAG.json

A model of the hub is found by its name there, ORG/REPO:QUANT; one of Ollama's own by the name that Ollama lists.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.gguf.shards import size_on_disk
from localspec.models.hub.files import is_model, part_number, quant_of, select, some
from localspec.models.names import HubName, squeezed
from localspec.models.ollama import MAX_LOOKED_AT, below, ollama_models, read_object
from localspec.sanitize import shown

OLLAMA, LM_STUDIO, LLAMA_CPP, FOLDER = "Ollama", "LM Studio", "llama.cpp", "a folder"
REMOVAL = {
    OLLAMA: "ollama rm {name}",
    LM_STUDIO: "remove it in LM Studio, under My Models",
    LLAMA_CPP: "rm {path}",
    FOLDER: "rm {path}",
}
LEAST_PART = 3  # letters of a part of a name
LONGEST = 4096  # characters of a path that can be typed as it is shown


@dataclass(frozen=True, slots=True)
class ForeignModel:
    """A model of another program. `name` is what to type for it, `path` its first file, `hub` its name on the hub."""

    name: str
    program: str
    path: Path
    bytes: int
    hub: HubName | None = None

    @property
    def removal(self) -> str:
        return REMOVAL[self.program].format(name=self.name, path=self.path)

    @property
    def label(self) -> str:
        return self.path.name if self.name == str(self.path) else self.name

    @property
    def untagged(self) -> str:
        return self.name.rpartition(":")[0] if self.program == OLLAMA else ""

    @property
    def names(self) -> set[str]:
        return {self.label} | (set() if self.program == OLLAMA else {self.path.name})


def foreign_models() -> list[ForeignModel]:
    ollama = list(_ollama())
    others = _once((*_lm_studio(), *_llama_cpp(), *_folders()), {os.path.realpath(model.path) for model in ollama})
    return sorted([*ollama, *others], key=lambda model: (model.program, model.name))


def _once(models: Iterable[ForeignModel], seen: set[str]) -> list[ForeignModel]:
    files = {real: model for model in reversed([*models]) if (real := os.path.realpath(model.path)) not in seen}
    return [*files.values()]


def of_hub(wanted: HubName) -> ForeignModel | None:
    if wanted.revision is not None:
        return None
    there: dict[str, ForeignModel] = {}
    for model in (*_ollama(), *_lm_studio(), *_llama_cpp(wanted.repo)):
        if model.hub is not None and model.hub.repo.lower() == wanted.repo.lower():
            there.setdefault(model.hub.file or f"x-{model.hub.quant}.gguf", model)
    with suppress(LocalspecError, KeyError):
        first = None if wanted.file is None else _whole_name(wanted.file)  # the parts of a model are one here
        return there[select(list(there), replace(wanted, file=first))[0]]
    return None


def models_in(folder: Path, depth: int = 4) -> list[Path]:
    return sorted(filter(_is_first, islice(below(folder, depth), MAX_LOOKED_AT)))


def _is_first(path: Path) -> bool:
    return is_model(path.name) and part_number(path.name) == 1 and path.is_file()


def by_part(name: str) -> ForeignModel | None:
    """Return the one model whose name is `name` or has it in it, None without one. A whole name comes before a part;
    signs that programs spell differently count for nothing in a part, and of a file only its own name counts. One of
    Ollama's without its tag is whole. Raises UsageError, with the list, for several."""
    models = with_part(name) if len(squeezed(name)) >= LEAST_PART else []
    whole = _spelt_as(name, models, lambda model: {*model.names, model.path.stem})
    return _one_of(name, whole or _spelt_as(name, models, lambda model: {model.untagged}) or models)


def with_part(name: str) -> list[ForeignModel]:
    part = squeezed(name.lower())
    return [model for model in foreign_models() if any(part in squeezed(each.lower()) for each in model.names)]


def by_file_name(name: str) -> ForeignModel | None:
    """Return the one model whose first file is called `name`, None without one; the case decides only among several. A
    file that several programs keep has each of its names. Raises UsageError, with the list, for several files."""
    named = _spelt_as(name, [*_lm_studio(), *_llama_cpp(), *_folders(), *_ollama()], lambda model: {model.path.name})
    return _one_of(name, _once(named, set()))


def _spelt_as(name: str, models: list[ForeignModel], names: Callable[[ForeignModel], set[str]]) -> list[ForeignModel]:
    """Return the models of which one of the `names` is `name`: in the case typed, else in any."""
    exact = [model for model in models if name in names(model)]
    return exact or [model for model in models if name.lower() in {each.lower() for each in names(model)}]


def _one_of(name: str, models: list[ForeignModel]) -> ForeignModel | None:
    if len({(os.path.realpath(model.path), model.untagged) for model in models}) < 2:
        return models[0] if models else None
    known = foreign_models()
    typed = [
        str(model.path)
        if os.path.lexists(model.label) or sum(model.label in each.names for each in known) > 1
        else model.label
        for model in models
    ]
    message = f"{len(models)} models here have '{shown(name)}' in their names: {some(typed, LONGEST)}"
    raise UsageError(message, hint=f"{shown(typed[0], LONGEST)}, or more of the name")


def own_names() -> list[str]:
    return [model.label for model in foreign_models()]


def only_model(folder: Path) -> Path:
    files = models_in(folder)
    if len(files) == 1:
        return files[0]
    label = shown(str(folder))
    if not files:
        raise NotFoundError(f"{label} is a directory without a GGUF model", hint="give the path of a GGUF file")
    names = [str(path) for path in files]
    raise UsageError(f"{label} holds {len(files)} models: {some(names, LONGEST)}", hint=shown(names[0], LONGEST))


def _whole_name(name: str) -> str:
    return re.sub(r"-\d{5}-of-\d{5}(?=\.gguf$)", "", name, flags=re.IGNORECASE)


def _made(name: str, program: str, path: Path, hub: HubName | None = None) -> Iterator[ForeignModel]:
    with suppress(OSError):
        yield ForeignModel(name, program, path, size_on_disk(path), hub)


def _ollama() -> Iterator[ForeignModel]:
    for model in filter(lambda model: model.is_here, ollama_models()):
        hub = HubName(model.repo, quant=model.name.rpartition(":")[2].upper()) if model.repo else None
        yield from _made(model.name, OLLAMA, model.path, hub)


def _lm_studio() -> Iterator[ForeignModel]:
    homes = [Path(os.path.expanduser(folder)) for folder in ("~/.lmstudio", "~/.cache/lm-studio")]
    places = [home / "models" for home in homes]
    for home in homes:
        chosen = read_object(home / "settings.json").get("downloadsFolder")
        places += [Path(chosen)] if isinstance(chosen, str) and chosen else []
    for top in dict.fromkeys(places):
        for path in models_in(top):
            parts = path.relative_to(top).parts
            if len(parts) >= 3:
                yield from _of_hub("/".join(parts[:2]), "/".join(parts[2:]), LM_STUDIO, path)


def _llama_cpp(wanted: str = "") -> Iterator[ForeignModel]:
    """Yield the models of its cache. Where ORG and REPO end in a file's name, a manifest tells, or `wanted`."""
    typed = os.environ.get("LLAMA_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    top = Path(typed) if typed else Path(base) / "llama.cpp"
    with suppress(OSError):
        entries = sorted(islice(top.iterdir(), MAX_LOOKED_AT))
        manifests = [entry.name for entry in entries if re.fullmatch(r"manifest(=[^=]+){3}\.json", entry.name)]
        repos = {tuple(name.split("=")[1:3]) for name in manifests} | ({tuple(wanted.split("/"))} if wanted else set())
        for path in entries:
            if _is_first(path):
                repo = next(
                    (repo for repo in sorted(repos) if path.name.lower().startswith(f"{'_'.join(repo)}_".lower())), None
                )
                if repo is None:
                    yield from _made(str(path), LLAMA_CPP, path)
                else:
                    yield from _of_hub("/".join(repo), path.name[len("_".join(repo)) + 1 :], LLAMA_CPP, path)


def _of_hub(repo: str, file: str, program: str, path: Path) -> Iterator[ForeignModel]:
    hub = HubName(repo, file=_whole_name(file))
    quant = quant_of(file)
    yield from _made(str(HubName(repo, quant=quant) if quant != "?" else hub), program, path, hub)


def _folders() -> Iterator[ForeignModel]:
    for top in dict.fromkeys((Path("models").absolute(), Path(os.path.expanduser("~/models")))):
        if (top / Path(__file__).name).exists():
            continue  # a checkout of localspec
        for path in models_in(top):
            yield from _made(str(path), FOLDER, path)
