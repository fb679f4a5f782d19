"""A hub on loopback that the real huggingface_hub client talks to, and a second server that its redirects lead to.

It speaks what the client asks for: repositories, trees, search, resolve with a redirect to where the bytes lie, ranges,
tokens, gates. `Faults` makes it misbehave; `requests` is all that was asked.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REVISION = "main"


@dataclass
class Repo:
    """A repository: its files by name. `gate` is public, gated or private; the latter two want `Server.token`.

    `tags` are other states of it, by name.
    """

    files: dict[str, bytes]
    gate: str = "public"
    commit: str = ""
    lfs: bool = True
    etags: dict[str, str] = field(default_factory=dict)  # told instead of the true hash
    tags: dict[str, Repo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.commit:
            told = json.dumps({name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()})
            self.commit = hashlib.sha1(told.encode()).hexdigest()

    def at(self, revision: str) -> Repo:
        """Return the state that a tag or its commit names, else the newest."""
        return next((one for tag, one in self.tags.items() if revision in (tag, one.commit)), self)

    def etag(self, name: str) -> str:
        return self.etags.get(name) or hashlib.sha256(self.files[name]).hexdigest()


@dataclass
class Faults:
    """What goes wrong. Lists are used up, an answer each; the rest is for every answer."""

    api: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # status and headers of the next answers
    cuts: list[int] = field(default_factory=list)  # bytes after which the connection of a download breaks
    cdn: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    html: bool = False  # a captive portal
    endless: bytes = b""  # sent again and again in place of every answer of the hub
    ignores_ranges: bool = False
    lies: bool = False  # one byte of every file is wrong
    surplus: bytes = b""  # sent after the file, and counted
    rate: float = 0.0  # bytes a second; 0: as fast as it goes
    lengths: list[int] = field(default_factory=list)  # told as the size of the body instead of its own
    stalls: threading.Event | None = None  # sends half a chunk, then nothing until that is set


@dataclass
class Request:
    """One request: which server, method, path, and the headers that matter."""

    server: str
    method: str
    path: str
    authorization: str | None
    range: str | None
    agent: str | None
    encoding: str | None


class Server:
    """Both servers, running."""

    def __init__(self, repos: dict[str, Repo], token: str = "hf_right") -> None:
        self.repos, self.token = repos, token
        self.faults = Faults()
        self.requests: list[Request] = []
        self.sent = 0  # bytes of models
        self._hub = self._serve("hub", _Hub)
        self._cdn = self._serve("cdn", _Cdn)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._hub.server_port}"

    @property
    def cdn(self) -> str:
        return f"http://127.0.0.1:{self._cdn.server_port}"

    def downloads(self) -> list[Request]:
        """Return the requests for bytes."""
        return [one for one in self.requests if one.server == "cdn" and one.method == "GET"]

    def close(self) -> None:
        for server in (self._hub, self._cdn):
            server.shutdown()
            server.server_close()

    def _serve(self, name: str, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type(name, (handler,), {"world": self, "name": name}))
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server


@contextmanager
def serving(repos: dict[str, Repo]) -> Iterator[Server]:
    server = Server(repos)
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler, ABC):
    world: Server
    name: str
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._note()

    def do_GET(self) -> None:
        self._note()

    def do_CONNECT(self) -> None:
        self.send(407)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _note(self) -> None:
        headers = self.headers
        self.world.requests.append(
            Request(
                self.name,
                self.command,
                self.path,
                headers.get("Authorization"),
                headers.get("Range"),
                headers.get("User-Agent"),
                headers.get("Accept-Encoding"),
            )
        )
        try:
            self.answer()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    @abstractmethod
    def answer(self) -> None:
        """Send what the request asks for."""

    def send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.send(status, json.dumps(value).encode(), Content_Type="application/json", **headers)


class _Hub(_Handler):
    def answer(self) -> None:
        faults = self.world.faults
        if faults.html:
            self.send(200, b"<html>log in to this network</html>", Content_Type="text/html")
            return
        if faults.endless:
            self._pour_endlessly(faults.endless)
            return
        if faults.api:
            status, headers = faults.api.pop(0)
            self.send(status, **headers)
            return
        path = urlsplit(self.path)
        parts: list[tuple[str, Callable[..., None]]] = [
            (r"/api/models", self._search),
            (r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", self._info),
            (r"/api/models/([^/]+/[^/]+)/tree/([^/]+)", self._tree),
            (r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
        ]
        for pattern, act in parts:
            found = re.fullmatch(pattern, path.path)
            if found:
                act(*(unquote(part or "") for part in found.groups()))
                return
        self.send(404)

    def _pour_endlessly(self, piece: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        while self.command == "GET":
            self.wfile.write(piece)

    def _repo(self, name: str, revision: str, *, wants_bytes: bool = False) -> Repo | None:
        """Return a repository, or answer that there is none for this caller."""
        newest = self.world.repos.get(name)
        repo = None if newest is None else newest.at(revision)
        given = self.headers.get("Authorization")
        if given not in (None, f"Bearer {self.world.token}"):
            self.send(401, X_Error_Message="Invalid credentials in Authorization header")
        elif repo is None or (repo.gate == "private" and given is None):
            self.send(401 if given is None else 404, X_Error_Code="RepoNotFound")
        elif repo.gate == "gated" and given is None and wants_bytes:
            self.send(401, X_Error_Code="GatedRepo", X_Error_Message=f"Access to model {name} is restricted.")
        elif (
            repo is newest
            and revision not in ("", REVISION, repo.commit)
            and not repo.commit.startswith(revision[:40] or "-")
        ):
            self.send(404, X_Error_Code="RevisionNotFound")
        else:
            return repo
        return None

    def _search(self) -> None:
        words = parse_qs(urlsplit(self.path).query).get("search", [""])[0].lower().split()
        found = [name for name in self.world.repos if all(word in name.lower() for word in words)]
        self.send_json([{"id": name, "modelId": name} for name in found])

    def _info(self, name: str, revision: str) -> None:
        repo = self._repo(name, revision)
        if repo is not None:
            siblings = [self._file(repo, each) for each in repo.files]
            self.send_json({"id": name, "sha": repo.commit, "gated": repo.gate == "gated", "siblings": siblings})

    def _file(self, repo: Repo, name: str) -> dict[str, Any]:
        size = len(repo.files[name])
        lfs = {"sha256": repo.etag(name), "size": size, "pointerSize": 134}
        return {"rfilename": name, "size": size, "blobId": "0" * 40, **({"lfs": lfs} if repo.lfs else {})}

    def _tree(self, name: str, revision: str) -> None:
        repo = self._repo(name, revision)
        if repo is not None:
            files = [
                {"type": "file", "path": each, "size": len(data), "oid": "0" * 40}
                | ({"lfs": {"oid": repo.etag(each), "size": len(data), "pointerSize": 134}} if repo.lfs else {})
                for each, data in repo.files.items()
            ]
            self.send_json(files)

    def _resolve(self, name: str, revision: str, file: str) -> None:
        repo = self._repo(name, revision, wants_bytes=True)
        if repo is None:
            return
        if file not in repo.files:
            self.send(404, X_Error_Code="EntryNotFound", X_Repo_Commit=repo.commit)
            return
        self.send(
            302,
            Location=f"{self.world.cdn}/{name}@{repo.commit}/{file}",
            X_Repo_Commit=repo.commit,
            X_Linked_Etag=f'"{repo.etag(file)}"',
            X_Linked_Size=str(len(repo.files[file])),
            ETag='"of-the-redirect"',
        )


class _Cdn(_Handler):
    def answer(self) -> None:
        world, faults = self.world, self.world.faults
        if faults.cdn:
            status, headers = faults.cdn.pop(0)
            self.send(status, **headers)
            return
        owner, place, file = unquote(self.path).lstrip("/").split("/", 2)
        repo, _, commit = place.partition("@")
        data = world.repos[f"{owner}/{repo}"].at(commit).files[file]
        if faults.lies:
            data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        start, status = 0, 200
        if found and not faults.ignores_ranges:
            start, status = int(found[1]), 206
            end = int(found[2]) + 1 if found[2] else len(data)
            if start >= len(data):
                self.send(416, Content_Range=f"bytes */{len(data)}")
                return
        else:
            end = len(data)
        body = data[start:end] + faults.surplus
        self.send_response(status)
        length = faults.lengths.pop(0) if faults.lengths else len(body)
        self.send_header("Content-Length", str(length))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        if length != len(body):  # else the client, which has all it was told of, might ask again on what is closed
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "GET":
            self._pour(body[:length], faults.cuts.pop(0) if faults.cuts else None)

    def _pour(self, body: bytes, cut: int | None) -> None:
        faults = self.world.faults
        step = 1 << 14 if faults.rate else 1 << 18
        for at in range(0, len(body), step):
            piece = body[at : at + step]
            if cut is not None and at + len(piece) > cut:
                self.wfile.write(piece[: max(0, cut - at)])
                self.close_connection = True
                return
            if faults.stalls is not None:
                self.wfile.write(piece[: len(piece) // 2])
                self.wfile.flush()
                faults.stalls.wait(240)
                return
            self.wfile.write(piece)
            self.world.sent += len(piece)
            if faults.rate:
                time.sleep(len(piece) / faults.rate)
