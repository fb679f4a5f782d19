"""The models of Ollama on this machine: its manifests name files of weights. Nothing is written there.

MODELS/manifests/HOST/SPACE/MODEL/TAG    JSON; its layer of weights has a digest
MODELS/blobs/sha256-DIGEST               the GGUF file
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path

import msgspec

from localspec.errors import NotFoundError
from localspec.sanitize import shown
from localspec.settings.request import LoadSettings, Message

MAX_LOOKED_AT = 2000  # files and folders looked at in one place
_MANIFEST_BYTES = 1 << 20
_LATEST = ":latest"
_LIBRARY, _HUB = ("registry.ollama.ai", "library"), ("hf.co", "huggingface.co")
_ROLES = ("system", "user", "assistant")
_LAYER = "application/vnd.ollama.image."
_BLOB = re.compile(r"sha256-[0-9a-f]{64}")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class OllamaModel:
    """A model by the name that Ollama lists. `repo` is its repository, where it came from the hub. `is_here`: its
    weights are, at `path`. `layers` are all files of its manifest, by kind."""

    name: str
    repo: str
    layers: Mapping[str, Path]

    @property
    def path(self) -> Path:
        return self.layers["model"]

    @property
    def is_here(self) -> bool:
        return self.path.is_file()

    def weights(self) -> Path:
        if not self.is_here:
            name = shown(self.name)
            raise NotFoundError(f"Ollama lists {name}, and its weights are not here", hint=f"ollama pull {name}")
        return self.path

    @property
    def system(self) -> str:
        """The system message that Ollama gives to a conversation, "" for none."""
        with suppress(OSError, KeyError), open(self.layers["system"], "rb") as file:
            return file.read(_MANIFEST_BYTES).decode("utf-8", "replace").strip()
        return ""

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is said before a conversation begins: the lines MESSAGE of a Modelfile."""
        with suppress(OSError, KeyError, msgspec.MsgspecError), open(self.layers["messages"], "rb") as file:
            given = msgspec.json.decode(file.read(_MANIFEST_BYTES), type=tuple[Message, ...])
            return tuple(Message(each.role, each.content) for each in given if each.role in _ROLES)
        return ()

    def to_wire(self) -> dict[str, object]:
        """Return what Ollama gives to a conversation, as a JSON object."""
        said = [{"role": each.role, "content": each.content} for each in self.messages]
        return {"name": self.name, "parameters": self.parameters, "system": self.system, "messages": said}

    @property
    def parameters(self) -> dict[str, object]:
        """The settings of sampling that Ollama gives to it, by Ollama's names."""
        return read_object(self.layers["params"]) if "params" in self.layers else {}


def ollama_models() -> Iterator[OllamaModel]:
    typed = os.environ.get("OLLAMA_MODELS")
    for top in [typed] if typed else [os.path.expanduser("~/.ollama/models"), "/usr/share/ollama/.ollama/models"]:
        manifests = Path(top) / "manifests"
        for manifest in islice(below(manifests, 6), MAX_LOOKED_AT):
            (*begin, tag) = manifest.relative_to(manifests).parts
            layers = _layers(manifest, Path(top) / "blobs")
            if "model" not in layers or len(begin) < 2:
                continue
            host, *space, model = begin
            place = [] if (host, *space) == _LIBRARY else space if host == _LIBRARY[0] else [host, *space]
            repo = f"{space[0]}/{model}" if host in _HUB and len(space) == 1 else ""
            yield OllamaModel("/".join((*place, f"{model}:{tag}")), repo, layers)


def is_named(text: str, names: Iterable[str]) -> bool:
    """Whether `text` is one of these names of models; case says nothing, and the tag latest goes without saying."""
    short = text.lower().removesuffix(_LATEST)
    return any(short == name.lower().removesuffix(_LATEST) for name in names)


def named(text: str) -> OllamaModel | None:
    """Return the model that Ollama calls `text`; the tag may be left out where it is latest."""
    return next((model for model in ollama_models() if is_named(text, (model.name,))), None)


def without_tag(name: str) -> str:
    return name.rpartition(":")[0] or name


def tagged(text: str) -> list[OllamaModel]:
    """Return the models of Ollama's that have this name, whatever their tags."""
    return [model for model in ollama_models() if text.lower() == without_tag(model.name).lower()]


def known_as(text: str, path: Path) -> OllamaModel | None:
    """Return the model of Ollama's whose file this is: of several the one that is called `text`."""
    models = [each for each in ollama_models() if each.path == path] if is_blob(path) else []
    return next((each for each in models if is_named(text, (each.name,))), models[0] if models else None)


def in_pair(load: LoadSettings) -> OllamaModel | None:
    """Return the model of Ollama's that is the target of a pair; None for another file."""
    return named(load.name.partition("+")[0]) if is_blob(Path(load.target)) else None


def messages_before(load: LoadSettings) -> tuple[Message, ...]:
    model = in_pair(load)
    return () if model is None else model.messages


def spoken(path: str | PathLike[str], *, briefly: bool = False) -> str:
    """Return what to call a file in messages, printable: its path, or `briefly` its name; a blob of Ollama's by its
    model's name."""
    path = Path(path)
    model = known_as("", path)
    if model is not None:
        return shown(model.name if briefly else f"Ollama's {model.name}")
    return shown(path.name if briefly else path)


def is_blob(path: Path) -> bool:
    """Whether a file is called as Ollama calls those of its models, which says nothing to a person."""
    return _BLOB.fullmatch(path.name) is not None


def below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files below a folder, so many folders deep; nothing of what cannot be read."""
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda item: item.name):
            if not entry.is_dir():
                yield Path(entry.path)
            elif depth and not entry.name.startswith("."):
                yield from below(Path(entry.path), depth - 1)


def read_object(path: Path) -> dict[str, object]:
    """Return the JSON object in a small file, an empty one for anything else."""
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= _MANIFEST_BYTES:
            value = json.loads(path.read_bytes())
            return value if isinstance(value, dict) else {}
    return {}


def _layers(manifest: Path, blobs: Path) -> dict[str, Path]:
    """Return the files that a manifest names, there or not, by kind: model, system, params and others."""
    found: dict[str, Path] = {}
    layers = read_object(manifest).get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and (digest := _DIGEST.fullmatch(str(layer.get("digest")))):
            kind = str(layer.get("mediaType")).removeprefix(_LAYER)
            found.setdefault(kind, blobs / f"sha256-{digest[1]}")
    return found
