"""The header of a model on the hub: its first megabytes are fetched and kept, the rest of the file is a hole."""

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from localspec.errors import IntegrityError, ResourceError
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import joined
from localspec.models.hub.files import Listing, RepoFile, quant_of, select
from localspec.models.hub.problems import translated
from localspec.models.hub.remote import SHA256, Hub
from localspec.models.names import HubName
from localspec.models.plan.models import ModelPart
from localspec.sanitize import shown
from localspec.settings.folders import cache_folder

FIRST_LOOK = 4 << 20  # bytes of a header fetched at first; vocabularies of 250 000 tokens take about 12 MB
PART_LOOK = 256 << 10  # likewise of a later part of a split model, which has no vocabulary
LAST_LOOK = 64 << 20
HEADERS = "headers"  # the folder of the cache


def remote_part(name: HubName, hub: Hub, *, may_be_head: bool = False) -> tuple[ModelPart, int, HubName]:
    """Return a model on the hub by its header, its size in bytes, and its name with the quantisation.

    A draft may be a head.
    """
    header, files = _header(name, hub)
    size = sum(file.size for file in files)
    part = ModelPart.of(header, replace(model_info(header, may_be_head=may_be_head), bytes=size))
    quant = quant_of(files[0].name)
    full = HubName(name.repo, name.revision, None if name.file or quant == "?" else quant, name.file)
    return part, size, full


def remote_header(name: HubName, hub: Hub) -> Header:
    return _header(name, hub)[0]


def _header(name: HubName, hub: Hub) -> tuple[Header, list[RepoFile]]:
    """Return the header, of a split model those of all parts as one, and the files of the model."""
    listing = hub.listing(name.repo, name.revision)
    files = [listing.file(part) for part in select([file.name for file in listing.files], name)]
    looks = [FIRST_LOOK, *[PART_LOOK] * (len(files) - 1)]
    paths = [_header_file(listing, file, hub, look) for file, look in zip(files, looks, strict=True)]
    return joined([read_header(path) for path in paths]), files


def _header_file(listing: Listing, file: RepoFile, hub: Hub, look: int) -> Path:
    """Return a file as long as the model that holds its header and nothing else: holes take no space.

    Of one that is not kept, `look` bytes are fetched at first.
    """
    if file.sha256 is None or not SHA256.fullmatch(file.sha256):
        raise IntegrityError(f"the hub gives no hash of {shown(file.name)}", hint="choose another repository")
    folder = cache_folder(HEADERS)
    local = folder / f"{file.sha256[:32]}.gguf"
    if local.is_file():
        return local
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=folder)
    except OSError as error:
        message = f"cannot write to {shown(folder)}: {error.strerror}"
        raise ResourceError(message, hint="LOCALSPEC_HOME=FOLDER") from error
    try:
        _fetch_header(listing, file, hub, handle, Path(beside), look)
        os.replace(beside, local)
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(beside)
    return local


def _fetch_header(listing: Listing, file: RepoFile, hub: Hub, handle: int, path: Path, look: int) -> None:
    """Fetch more and more of a file's start, `look` bytes at first, until its header is whole."""
    have, want = 0, look
    while True:
        want = min(want, file.size, LAST_LOOK)
        with translated(listing.repo, hub.endpoint), hub.body(listing, file, have, want) as body:
            at = body.start
            for chunk in body.chunks:
                at += os.pwrite(handle, chunk[: max(0, want - at)], at)
                if at >= want:
                    break
        os.ftruncate(handle, file.size)
        have = min(at, want)
        try:
            if read_header(path).data_offset <= have:
                return
            why = "it is longer than it says"
        except IntegrityError as error:
            why = error.message.partition(": ")[2]
        if have < want or want == min(file.size, LAST_LOOK):
            message = f"the header of {shown(file.name)} of {listing.repo} cannot be read: {why}"
            raise IntegrityError(message, hint="choose another repository of the model")
        want *= 4
