"""Who may ask, decided before a body is read.

Without a key, only programs of this machine may, and no web page: a page of another origin names itself in `Origin` or
`Sec-Fetch-Site`, and one that made its own name lead here (DNS rebinding) says that name in `Host`.
"""

import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import encoded

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
OPEN = ("/", "/health", "/v1/health")  # paths that need no key
STATUS = "/status"  # what people ask and are answered: it always needs a key, which the page has


@dataclass(frozen=True, slots=True)
class Rules:
    """`key` None asks for none. `host` is the address that was asked for, `origins` are pages that may ask.

    `page_key` is that of the server's own page, which shows what others are answered.
    """

    key: str | None = None
    host: str = "127.0.0.1"
    origins: frozenset[str] = frozenset()
    page_key: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def judge(self, path: str, headers: dict[str, str]) -> None:
        """Raise Refusal for a request that may not be answered; names of `headers` are in lower case."""
        host = headers.get("host", "")
        own = f"[{self.host}]" if ":" in self.host else self.host.lower()
        if self.key is None and _name(host) not in (*LOOPBACK, own):
            message = f"the Host {host[:80]!r} is not this machine; ask for 127.0.0.1, or start with --api-key"
            raise Refusal(403, message, code="host")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and not self.allows(origin) and origin not in (f"http://{host}", f"https://{host}"):
            message = f"pages of {origin[:80]!r} may not ask; localspec serve --cors ORIGIN lets them"
            raise Refusal(403, message, code="origin")
        if origin is None and site not in ("none", "same-origin"):
            raise Refusal(403, "pages of other sites may not ask", code="origin")
        if (self.key is not None and path not in OPEN) or path == STATUS:
            given = headers.get("authorization", f"Bearer {headers.get('x-api-key', '')}").encode("latin-1")
            keys = [self.page_key if path == STATUS else None, self.key]
            if not any(key and hmac.compare_digest(given, f"Bearer {key}".encode()) for key in keys):
                raise Refusal(401, "the API key is missing or wrong", code="invalid_api_key",
                              headers={"WWW-Authenticate": "Bearer"})  # fmt: skip

    def allows(self, origin: str | None) -> bool:
        """Whether pages of this origin were let in by --cors, whose origins may have a `*`."""
        patterns = (re.escape(each).replace("\\*", "[^/]*") for each in self.origins)
        return origin is not None and ("*" in self.origins or any(re.fullmatch(each, origin) for each in patterns))


def _name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


class Guard:
    """Wraps an ASGI application in the rules, and adds what a page of an allowed origin needs to read the answer.

    What goes wrong inside is one line in the log and a 500, never a trace for the client.
    """

    def __init__(self, app: App, rules: Rules, on_bug: Callable[[Exception], None]) -> None:
        self._app = app
        self._rules = rules
        self._on_bug = on_bug

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] in ("http", "websocket"), "lifespan is not on"
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        # Clients put further slashes into a path, and proxies their name of Ollama.
        scope = {**scope, "path": re.sub("/+", "/", scope["path"]).removeprefix("/ollama").rstrip("/") or "/"}
        origin, is_socket = headers.get("origin"), scope["type"] == "websocket"  # whose refusal is a response of HTTP
        extra = _cors(origin, headers) if origin is not None and self._rules.allows(origin) and not is_socket else []
        has_begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        try:
            if extra and scope["method"] == "OPTIONS":
                await Response(status_code=204)(scope, receive, sending)
                return
            self._rules.judge(scope["path"], headers)
            await self._app(scope, receive, sending)
        except Refusal as refusal:
            assert not has_begun
            await refused(scope["path"], refusal)(scope, receive, sending)
        except Exception as error:
            self._on_bug(error)
            if is_socket:
                raise
            if has_begun:
                scope["state"]["abort"]()
            else:
                failure = Refusal(500, "the server failed; its log says why")
                await refused(scope["path"], failure)(scope, receive, sending)


def _cors(origin: str, headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    wanted = headers.get("access-control-request-headers", "authorization, content-type")
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
        (b"access-control-allow-headers", wanted.encode("latin-1")),
        (b"vary", b"Origin"),
    ]


def refused(path: str, refusal: Refusal) -> Response:
    return Response(encoded(refusal_wire(path, refusal)), refusal.status, dict(refusal.headers), "application/json")


def refusal_wire(path: str, refusal: Refusal) -> Wire:
    if path.startswith("/v1/messages"):
        return refusal.to_anthropic()
    return refusal.to_ollama() if path.startswith("/api/") else refusal.to_openai()
