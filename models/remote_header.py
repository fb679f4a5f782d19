"""The header of a model on the hub: its first megabytes are fetched and kept, the rest of the file is a hole."""

import os
from pathlib import Path
from typing import IO

from localspec.errors import IntegrityError, ResourceError
from localspec.models.gguf.header import Header, read_header
from localspec.models.gguf.shards import joined
from localspec.models.hub.files import Listing, RepoFile, full_name, select
from localspec.models.hub.problems import translated
from localspec.models.hub.remote import SHA256, Hub
from localspec.models.names import HubName
from localspec.sanitize import shown
from localspec.settings.folders import cache_folder, replacing

FIRST_LOOK = 4 << 20  # bytes of a header fetched at first; vocabularies of 250 000 tokens take about 12 MB
PART_LOOK = 256 << 10  # likewise of a later part of a split model, which has no vocabulary
LAST_LOOK = 64 << 20
HEADERS = "headers"  # the folder of the cache


def remote_header(name: HubName, hub: Hub) -> tuple[Header, HubName]:
    listing = hub.listing(name.repo, name.revision)
    files = [listing.file(part) for part in select([file.name for file in listing.files], name)]
    looks = [FIRST_LOOK, *[PART_LOOK] * (len(files) - 1)]
    paths = [_header_file(listing, file, hub, look) for file, look in zip(files, looks, strict=True)]
    return joined([read_header(path) for path in paths]), full_name(name, name.revision, files[0].name)


def _header_file(listing: Listing, file: RepoFile, hub: Hub, look: int) -> Path:
    """Return a file as long as the model that holds its header and nothing else: holes take no space."""
    if file.sha256 is None or not SHA256.fullmatch(file.sha256):
        raise IntegrityError(f"the hub gives no hash of {shown(file.name)}", hint="choose another repository")
    folder = cache_folder(HEADERS)
    local = folder / f"{file.sha256[:32]}.gguf"
    if local.is_file():
        return local
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(local) as out:
            _fetch_header(listing, file, hub, out, look)
    except OSError as error:
        message = f"cannot write to {shown(folder)}: {error.strerror}"
        raise ResourceError(message, hint="LOCALSPEC_HOME=FOLDER") from error
    return local


def _fetch_header(listing: Listing, file: RepoFile, hub: Hub, out: IO[bytes], look: int) -> None:
    """Fetch more and more of a file's start, `look` bytes at first, until its header is whole."""
    have, want = 0, look
    while True:
        want = min(want, file.size, LAST_LOOK)
        with translated(listing.repo, hub.endpoint), hub.body(listing, file, have, want) as body:
            at = body.start
            for chunk in body.chunks:
                at += os.pwrite(out.fileno(), chunk[: max(0, want - at)], at)
                if at >= want:
                    break
        os.ftruncate(out.fileno(), file.size)
        have = min(at, want)
        try:
            if read_header(out.name).data_offset <= have:
                return
            why = "it is longer than it says"
        except IntegrityError as error:
            why = error.message.partition(": ")[2]
        if have < want or want == min(file.size, LAST_LOOK):
            message = f"the header of {shown(file.name)} of {listing.repo} cannot be read: {why}"
            raise IntegrityError(message, hint="choose another repository of the model")
        want *= 4
