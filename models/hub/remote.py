"""Asking the hub: what a repository holds, whether a file may be had, its bytes from a place on.

Endpoint, token, proxies and timeouts are those of huggingface_hub (HF_ENDPOINT, HF_TOKEN, HF_HUB_DOWNLOAD_TIMEOUT).
"""

import os
import re
import shlex
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from localspec import __version__
from localspec.errors import IntegrityError, NetworkError, UsageError
from localspec.models.hub.files import Listing, RepoFile, require_safe
from localspec.models.hub.problems import hub_settings, is_passing, offline, translated, wait_wanted
from localspec.sanitize import shown

MAIN = "main"
TRIES = 4
MAX_WAIT = 20.0  # seconds that a server may ask to wait; a longer wait is an error
KNOCK = 2.0  # seconds for the first connection: with a name server it takes 0.1, and people wait for it
MAX_ANSWER = 64 << 20  # bytes of an answer that is no file: a repository of many thousand files has a few
MAX_ANSWERING = 60.0  # seconds of such an answer
MAX_PLAIN = 50_000_000_000  # bytes: larger files the hub gives only by its own protocol

SHA256 = re.compile(r"[0-9a-f]{64}")
COMMIT = re.compile(r"[0-9a-f]{40}")

T = TypeVar("T")


class _Asking(threading.local):
    """Whether this thread asks for something other than a file's bytes."""

    is_on = False


_asking = _Asking()


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of a file from `start` on: 0 where the server would not begin elsewhere."""

    start: int
    chunks: Iterator[bytes]


class Hub:
    """The hub at `endpoint`, by default HF_ENDPOINT's. `pause` waits that many seconds before another try."""

    def __init__(self, endpoint: str | None = None, pause: Callable[[float], None] = time.sleep) -> None:
        constants = hub_settings()
        self.endpoint = constants.ENDPOINT if endpoint is None else endpoint
        self._timeout = float(constants.HF_HUB_DOWNLOAD_TIMEOUT)
        self.pause = pause
        self._is_reached = False
        try:
            address = urlsplit(self.endpoint)
            is_address = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        except ValueError:
            is_address = False
        if not is_address:
            message = f"HF_ENDPOINT is '{shown(self.endpoint)}', which is not an address"
            raise UsageError(message, hint="unset it, or HF_ENDPOINT=https://HOST")

    def reach(self) -> None:
        """Raise NetworkError where no connection is made within `KNOCK` seconds, or those of HF_HUB_DOWNLOAD_TIMEOUT.
        It is tried once. A proxy is left to the requests themselves."""
        if self._is_reached or _has_proxy(self.endpoint):
            return
        seconds = max(KNOCK, self._timeout) if "HF_HUB_DOWNLOAD_TIMEOUT" in os.environ else KNOCK
        if not _answers(self.endpoint, seconds):
            raise offline(self.endpoint)
        self._is_reached = True

    def listing(self, repo: str, revision: str | None) -> Listing:
        """Return what a repository holds. Raises NetworkError, and IntegrityError for names that are not safe."""
        self.reach()
        from huggingface_hub import HfApi

        asked = MAIN if revision is None else revision
        api = HfApi(self.endpoint, library_name="localspec", library_version=__version__)
        with translated(repo, self.endpoint), _bounded_answers():
            info = self._tried(lambda: api.model_info(repo, revision=asked, files_metadata=True, timeout=self._timeout))
            files = [
                RepoFile(
                    str(file.rfilename),
                    -1 if file.size is None else int(file.size),
                    None if file.lfs is None else str(file.lfs.sha256),
                )
                for file in info.siblings or ()
            ]
            commit = str(info.sha)
        if not COMMIT.fullmatch(commit):
            raise NetworkError(f"the hub names no commit of {repo}", hint="check HF_ENDPOINT")
        require_safe(repo, (file.name for file in files))
        return Listing(repo, asked, commit, tuple(files))

    def check(self, listing: Listing, file: RepoFile) -> None:
        """Ask for a file's head, so that what is gated or gone is known before anything is downloaded. Raises
        NetworkError, and IntegrityError where the hub gives no hash to check by, or two."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_url

        url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=self.endpoint)
        with translated(listing.repo, self.endpoint):
            head = self._tried(lambda: get_hf_file_metadata(url, timeout=self._timeout, endpoint=self.endpoint))
        if file.sha256 is None or not SHA256.fullmatch(file.sha256) or head.etag != file.sha256 or file.size < 0:
            raise IntegrityError(
                f"the hub gives no hash that {shown(file.name)} of {listing.repo} could be checked by",
                hint="choose another repository of the model",
                detail={"sha256": shown(file.sha256 or ""), "etag": shown(head.etag or "")},
            )
        if file.size > MAX_PLAIN:
            message = f"{shown(file.name)} is larger than 50 GB, which the hub gives only by its own protocol"
            raise NetworkError(message, hint=_by_hf(listing, file))

    @contextmanager
    def body(self, listing: Listing, file: RepoFile, start: int, end: int | None = None) -> Iterator[Body]:
        """Open a file at byte `start`, for reading up to byte `end`. One try: whoever reads knows how much has come."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        headers = build_hf_headers(library_name="localspec", library_version=__version__)
        headers["Accept-Encoding"] = "identity"
        if start or end is not None:
            headers["Range"] = f"bytes={start}-{'' if end is None else end - 1}"
        url = hf_hub_url(listing.repo, file.name, revision=listing.commit, endpoint=self.endpoint)
        # A redirect to another host loses the token on its way: the client sees to that.
        with _session().stream("GET", url, headers=headers, timeout=self._timeout, follow_redirects=True) as response:
            if response.status_code == 416:
                yield Body(0, iter(()))
                return
            if response.status_code >= 400:
                response.read()
            hf_raise_for_status(response)
            is_range = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            yield Body(start if response.status_code == 206 and is_range else 0, response.iter_bytes())

    def search(self, words: str, limit: int = 20) -> list[str]:
        self.reach()
        from huggingface_hub import HfApi

        with translated(words, self.endpoint), _bounded_answers():
            repos = HfApi(self.endpoint).list_models(search=words, filter="gguf", sort="downloads", limit=limit)
            return [str(repo.id) for repo in repos]

    def _tried(self, ask: Callable[[], T]) -> T:
        attempt = 1
        while True:
            try:
                return ask()
            except Exception as error:
                wait = wait_wanted(error) or 0.25 * 2**attempt
                if attempt == TRIES or not is_passing(error) or wait > MAX_WAIT:
                    raise
                self.pause(wait)
            attempt += 1


@contextmanager
def _bounded_answers() -> Iterator[None]:
    """Read the answers to what this thread asks up to `MAX_ANSWER`: a server may send JSON without an end."""
    _session()
    _asking.is_on = True
    try:
        yield
    finally:
        _asking.is_on = False


def _session() -> Any:
    from huggingface_hub import get_session

    session = get_session()
    if _bound not in session.event_hooks["response"]:
        session.event_hooks["response"].append(_bound)
    return session


def _bound(response: Any) -> None:
    """Let an answer that is no file end with NetworkError where it is too long; called before it is read."""
    if not (_asking.is_on or response.status_code >= 400):
        return
    read, until = response.iter_bytes, time.monotonic() + MAX_ANSWERING

    def bounded(chunk_size: int | None = None) -> Iterator[bytes]:
        n = 0
        for chunk in read(chunk_size):
            n += len(chunk)
            if n > MAX_ANSWER or time.monotonic() > until:
                most = f"{MAX_ANSWER >> 20} MiB or {MAX_ANSWERING:.0f} s"
                raise NetworkError(f"the hub's answer does not end within {most}", hint="check HF_ENDPOINT")
            yield chunk

    response.iter_bytes = bounded


def _has_proxy(endpoint: str) -> bool:
    address = urlsplit(endpoint)
    proxies = getproxies()
    return not proxy_bypass(address.hostname or "") and (address.scheme in proxies or "all" in proxies)


def _answers(endpoint: str, seconds: float) -> bool:
    """Whether the endpoint takes a connection. Looking a name up knows no limit, so a thread that is left does it."""
    address = urlsplit(endpoint)
    port = address.port or (443 if address.scheme == "https" else 80)
    answered = threading.Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection((address.hostname or "", port), timeout=seconds):
            answered.set()

    thread = threading.Thread(target=connect, daemon=True, name="reach")
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def _by_hf(listing: Listing, file: RepoFile) -> str:
    # It is installed with localspec, in an environment of its own that is on nobody's PATH.
    program = shutil.which("hf", path=str(Path(sys.executable).parent)) or "hf"
    revision = () if listing.revision == MAIN else ("--revision", listing.revision)
    return shown(shlex.join((program, "download", listing.repo, file.name, *revision)), limit=1000)
