"""The header of a model on the hub: its first megabytes are fetched and kept, the rest of the file is a hole."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from localspec.errors import IntegrityError, ResourceError
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.shards import joined
from localspec.models.hub.files import Listed, Listing, quant_of, select
from localspec.models.hub.problems import translated
from localspec.models.hub.remote import SHA256, Hub
from localspec.models.names import HubName
from localspec.sanitize import shown
from localspec.settings.folders import cache_folder

FIRST_LOOK = 4 << 20  # bytes of a header fetched at first; vocabularies of 250 000 tokens take about 12 MB
LAST_LOOK = 64 << 20
HEADERS = "headers"  # the folder of the cache


def remote_info(name: HubName, hub: Hub, *, may_be_head: bool = False) -> tuple[ModelInfo, int, HubName]:
    """Return what the header of a model on the hub says, its size in bytes, and its name with the quantisation.

    Of a split model the first part is read. A draft may be a head.
    """
    listing, files = _files(name, hub)
    size = sum(file.size for file in files)
    header = read_header(_header_file(listing, files[0], hub))
    info = replace(model_info(header, is_first_part=len(files) > 1, may_be_head=may_be_head), bytes=size)
    quant = quant_of(files[0].name)
    full = HubName(name.repo, name.revision, None if name.file or quant == "?" else quant, name.file)
    return info, size, full


def remote_header(name: HubName, hub: Hub) -> Header:
    """Return the header of a model on the hub, of a split model those of all parts as one."""
    listing, files = _files(name, hub)
    return joined([read_header(_header_file(listing, file, hub)) for file in files])


def _files(name: HubName, hub: Hub) -> tuple[Listing, list[Listed]]:
    listing = hub.listing(name.repo, name.revision)
    return listing, [listing.file(part) for part in select([file.name for file in listing.files], name)]


def _header_file(listing: Listing, file: Listed, hub: Hub) -> Path:
    """Return a file as long as the model that holds its header and nothing else: holes take no space."""
    if file.sha256 is None or not SHA256.fullmatch(file.sha256):
        raise IntegrityError(f"the hub gives no hash of {shown(file.name)}", hint="choose another repository")
    folder = cache_folder(HEADERS)
    kept = folder / f"{file.sha256[:32]}.gguf"
    if kept.is_file():
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=folder)
    except OSError as error:
        raise ResourceError(
            f"cannot write to {shown(folder)}: {error.strerror}", hint="LOCALSPEC_HOME=FOLDER"
        ) from error
    try:
        _fetch_header(listing, file, hub, handle, Path(beside))
        os.replace(beside, kept)
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(beside)
    return kept


def _fetch_header(listing: Listing, file: Listed, hub: Hub, handle: int, path: Path) -> None:
    """Fetch more and more of a file's start until its header is whole."""
    have, want = 0, FIRST_LOOK
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
            raise IntegrityError(
                f"the header of {shown(file.name)} of {listing.repo} cannot be read: {why}",
                hint="choose another repository of the model",
            )
        want *= 4
