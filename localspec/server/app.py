"""The routes, each a few lines: a body is read within its limit, and read by the module of its API."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from localspec.remote import PATH
from localspec.server import anthropic, llama_server, ollama, openai, own, responses
from localspec.server.answering import AnswerResponse, QuestionResponse
from localspec.server.engine import ServerEngine
from localspec.server.fields import ClientRequest, Searched, ServedPair
from localspec.server.guard import STATUS, App, Receive, Scope, Send, refused
from localspec.server.own import page
from localspec.server.refusal import Refusal, Wire
from localspec.server.reply import encoded
from localspec.server.served_pairs import Pairs

LONGEST_BODY = 4 * 2**20  # bytes
SLOWEST_BODY = 30.0  # seconds
MOST_NOTED = 1000
Reader = Callable[[object, ServedPair], ClientRequest | Searched | Wire]  # a Wire is the whole answer
NO_EMBEDDINGS = "this server makes no embeddings: it runs a pair that writes text"
NO_MEDIA = "this server reads and writes text only"
NO_MANAGING = "models are managed on the command line: localspec pull NAME, localspec ls"
NO_FILES = "this server keeps no files and runs no batches"
ABSENT = {  # paths of these APIs that are not here, and why
    **dict.fromkeys(("/v1/embeddings", "/embeddings", "/embedding", "/api/embed", "/api/embeddings"), NO_EMBEDDINGS),
    **dict.fromkeys(("/v1/rerank", "/v1/reranking", "/rerank", "/reranking"), NO_EMBEDDINGS),
    **dict.fromkeys(("/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"), NO_MEDIA),
    **dict.fromkeys(("/v1/images/generations", "/v1/images/edits", "/v1/images/variations"), NO_MEDIA),
    **dict.fromkeys(("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"), NO_MANAGING),
    **dict.fromkeys(("/v1/files", "/v1/batches", "/v1/fine_tuning/jobs", "/v1/moderations"), NO_FILES),
}
Handler = Callable[[Request], Awaitable[App]]  # what sends the response


@dataclass(frozen=True, slots=True)
class Routes:
    """What the routes ask."""

    engine: ServerEngine
    pairs: Pairs
    on_note: Callable[[str], None] = lambda note: None  # is called with what was not obeyed, once for a client
    noted: set[str] = field(default_factory=set)

    def routes(self) -> Sequence[BaseRoute]:
        get: dict[str, Callable[[], Wire]] = {
            **dict.fromkeys(("/health", "/v1/health"), self._health),
            **dict.fromkeys(("/v1/models", "/models"), lambda: openai.models(self.pairs.listed())),
            STATUS: self._status,
            "/props": lambda: llama_server.props(self.pairs.current),
            "/api/tags": lambda: ollama.tags(self.pairs.listed()),
            "/api/ps": lambda: ollama.ps(self.pairs.loaded_in(self.engine)),
            "/api/version": ollama.version,
        }
        post: dict[str, Reader] = {
            **dict.fromkeys(("/v1/chat/completions", "/chat/completions"), openai.chat),
            **dict.fromkeys(("/v1/completions", "/completions"), openai.completion),
            **dict.fromkeys(("/v1/responses", "/responses"), responses.responses),
            "/v1/messages": anthropic.messages,
            "/v1/messages/count_tokens": anthropic.count_tokens,
            "/v1/events": own.events,
            "/api/chat": ollama.chat,
            "/api/generate": ollama.generate,
            "/api/show": ollama.show,
            "/completion": llama_server.completion,
            "/infill": llama_server.infill,
            "/tokenize": llama_server.tokenize,
            "/detokenize": llama_server.detokenize,
            "/apply-template": llama_server.apply_template,
        }
        return [
            *(Route(path, self._facts(facts), methods=["GET"]) for path, facts in get.items()),
            *(Route(path, self._answered(read), methods=["POST"]) for path, read in post.items()),
            Route("/", self._front, methods=["GET"]),
            Route("/v1/models/{name:path}", self._model, methods=["GET"]),
            Route("/v1/pair", self._pair, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            WebSocketRoute(PATH, _Verifying(self.engine, self.pairs.current)),  # the first pair
            *(Route(path, _absent, methods=["GET", "POST", "DELETE"]) for path in ABSENT),
        ]

    def app(self, before: Sequence[BaseRoute] = ()) -> Starlette:
        handlers: dict[Any, Callable[..., Awaitable[Response]]]
        handlers = {Refusal: _refusal, HTTPException: _unknown, ClientDisconnect: _gone}
        return _App(routes=[*before, *self.routes()], exception_handlers=handlers)

    def _health(self) -> Wire:
        return {"status": "ok", "is_busy": self.engine.is_busy, "waiting": self.engine.n_waiting}

    def _status(self) -> Wire:
        served = self.pairs.current
        draft = served.draft
        drafts = None if draft is None else f"{draft.arch}, {draft.n_params / 1e6:.0f}M"
        facts = {"model": served.name, "draft": drafts, "n_ctx": served.n_ctx, "waiting": self.engine.n_waiting}
        totals = self.engine.totals
        counts = {"answering": self.engine.n_answering, "answers": totals.answers, **totals.rates()}
        return {**facts, **counts, **self.engine.board.summary()}

    async def _front(self, request: Request) -> Response:
        """Return the page to a browser, and the health to clients of Ollama, which look here for a server."""
        if "text/html" not in request.headers.get("accept", ""):
            return _json(self._health())
        content, headers = page()
        return Response(content, media_type="text/html", headers=headers)

    def _facts(self, facts: Callable[[], Wire]) -> Handler:
        async def handle(_request: Request) -> Response:
            return _json(await asyncio.to_thread(facts))  # a list of models is read from the disk

        return handle

    def _answered(self, read: Reader) -> Handler:
        async def handle(request: Request) -> App:
            body = await body_of(request)
            served = await self.pairs.named(body.get("model") if isinstance(body, dict) else None)
            asked = await asyncio.to_thread(read, body, served)  # a form may take seconds to be read
            if isinstance(asked, Searched):
                return QuestionResponse(self.engine, served.settings, asked.question, asked.wire)
            if not isinstance(asked, ClientRequest):
                return _json(asked)
            self._note(request, asked.notes)
            return AnswerResponse(self.engine, served.settings, asked)

        return handle

    def _note(self, request: Request, notes: list[str]) -> None:
        client = ascii(request.headers.get("user-agent", "a client")[:80]).strip("'")
        for note in notes:
            line = f"{client}: {note}"
            if line not in self.noted and len(self.noted) < MOST_NOTED:
                self.noted.add(line)
                self.on_note(line)

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        served = await self.pairs.named(name)
        served.require(name)
        return _json(openai.model(served))

    async def _pair(self, request: Request) -> Response:
        name = request.query_params.get("model", "")
        served = await self.pairs.named(name)
        served.require(name or served.name)
        return _json(own.pair(served))

    async def _metrics(self, _request: Request) -> Response:
        engine = self.engine
        text = engine.totals.text(waiting=engine.n_waiting, answering=engine.n_answering)
        return Response(text, media_type="text/plain; version=0.0.4")


class _App(Starlette):
    """Starlette without its own answer to what goes wrong inside, which is no JSON: the guard gives one."""

    def build_middleware_stack(self) -> App:
        return ExceptionMiddleware(self.router, self.exception_handlers)


@dataclass(slots=True)
class _Verifying:
    """The application for edges, made for the first one: it brings numpy."""

    engine: ServerEngine
    served: ServedPair
    made: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.made is None:
            from localspec.server.verifying import VerifyingApp

            self.made = VerifyingApp(self.engine, self.served)
        await self.made(scope, receive, send)


async def _absent(request: Request) -> Response:
    raise Refusal(501, ABSENT[request.url.path], code="not_implemented")


def _json(wire: Wire) -> Response:
    return Response(encoded(wire), media_type="application/json")


async def body_of(request: Request) -> object:
    """Return the JSON of a body; raises Refusal for one that is too long, too slow or no JSON."""
    too_long = Refusal(413, f"the body is longer than {LONGEST_BODY} bytes", code="body_too_long")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length[:18]) > LONGEST_BODY:
        raise too_long
    raw = bytearray()
    try:
        async with asyncio.timeout(SLOWEST_BODY):
            async for chunk in request.stream():
                raw += chunk
                if len(raw) > LONGEST_BODY:
                    raise too_long
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {SLOWEST_BODY:g} s") from None
    try:
        return msgspec.json.decode(bytes(raw))
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Refusal(400, f"the body is no JSON: {error}") from None


async def _refusal(request: Request, refusal: Refusal) -> Response:
    return refused(request.scope["path"], refusal)


async def _unknown(request: Request, error: HTTPException) -> Response:
    path = request.url.path[:80]
    message = f"there is no {path}" if error.status_code == 404 else f"{path} takes no {request.method[:20]}"
    return refused(path, Refusal(error.status_code, message, headers=error.headers or {}))


async def _gone(_request: Request, _error: ClientDisconnect) -> Response:
    return Response(status_code=400)  # nobody reads it
