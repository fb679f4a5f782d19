"""`localspec serve`: pairs behind the HTTP APIs of OpenAI, Anthropic, Ollama and llama-server, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.chat.pair_loader import ChatWorker
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import present_settings
from localspec.cli.live import Live
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    ReportOptions,
    declared_options,
    model_options,
    picked,
    preset_option,
    report_options,
    sampling_options,
    speculation_options,
)
from localspec.cli.output import write_json
from localspec.cli.pair_engine import asking
from localspec.cli.params import Command, option, stacked
from localspec.cli.settings import PairOptions, is_drafting_open, promised_settings, request_settings
from localspec.engine.events import Loaded, Warned
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.available import AvailablePair, find, offers
from localspec.models.catalog import load_catalog
from localspec.models.ollama import is_named
from localspec.models.store import usual_speculation
from localspec.sanitize import one_line
from localspec.settings.request import ANSWER, LoadSettings, Request
from localspec.ui.inputs import file_text
from localspec.ui.settings import check
from localspec.ui.stats import Stats
from localspec.ui.summary import stats_line
from localspec.worker.client import Worker
from localspec.worker.shared import SharedWorker

if TYPE_CHECKING:
    from localspec.server.app import Routes
    from localspec.server.fields import ServedPair
    from localspec.server.guard import Rules
    from localspec.server.listening import Door, HttpServer
    from localspec.server.served_pairs import Pairs


@dataclass(frozen=True)
class Others:
    """What --models names, and how each pair is loaded and asked.

    `is_open`: nothing says how to draft, so each pair drafts in its own usual way. `tell` takes the remark of a pair.
    """

    names: tuple[str, ...]  # as typed, some by commas
    pairs: PairOptions
    request: Request
    is_open: bool
    tell: Callable[[str], None]

    def require(self) -> None:
        here = self._here()
        for name in self._wanted():
            if not any(is_named(name, (each.ref, each.name)) for each in here):
                hint = f"localspec pairs add NAME {shlex.quote(name)}" if os.path.isfile(name) else "localspec ls"
                raise NotFoundError(f"--models: no model here is called {one_line(name)}", hint=hint)

    def offers(self) -> Sequence[AvailablePair]:
        wanted = self._wanted()
        if not self.names:
            return ()
        present = self._here()
        return [each for each in present if not wanted or any(is_named(name, (each.ref, each.name)) for name in wanted)]

    def served(self, offer: AvailablePair) -> ServedPair:
        """Return a pair to be loaded. A LoRA adapter belongs to the first pair. Raises LocalspecError."""
        from localspec.server.fields import ServedPair  # late, as the server is
        from localspec.server.served_pairs import other_names

        pair = find(offer)
        if pair.remark:
            self.tell(pair.remark)
        settings = replace(_parallel(self.pairs.settings(pair)), lora=(), expected=None)
        request, usual = self.request, usual_speculation(settings)
        if self.is_open:
            request = replace(request, speculation=replace(request.speculation, method=usual.method, k=usual.k))
        check(request, settings)
        names, now = other_names(offer), int(time.time())
        return ServedPair(offer.ref, names, now, offer.target_bytes, offer.quant, None, settings, request)

    def _wanted(self) -> list[str]:
        names = [name.strip() for text in self.names for name in text.split(",") if name.strip()]
        return [] if ALL in names else names

    def _here(self) -> list[AvailablePair]:
        return [each for each in offers(load_catalog()) if each.where == "here"]


ALL = "all"
PARALLEL = 4  # answers at once
SERVER = "Server"
ORIGIN = re.compile(r"https?://[^/*]+(:\*)?|(?!https?:)[\w.+-]+://[^/]+")  # `*` is a port, or any page of an app
LONGEST_KEY = 4096  # bytes


@dataclass(frozen=True)
class ServeOptions(ReportOptions):
    """Values of the options that are no settings."""

    host: str
    port: int
    alias: tuple[str, ...]
    api_key: str | None
    api_key_file: str | None
    cors: tuple[str, ...]
    models: tuple[str, ...]
    queue: int
    ssl_certfile: str | None
    ssl_keyfile: str | None
    as_json: bool


@click.command(cls=Command)
@click.argument("pair", required=False, shell_complete=pair_names)
@option("--host", is_own=True, default="127.0.0.1", metavar="ADDRESS", section=SERVER,
        help="Where to listen; other machines need a key.  [default: 127.0.0.1]")  # fmt: skip
@option("--port", is_own=True, type=Integer(0, 65535), default=8080, metavar="N", section=SERVER,
        help="0: any that is free.  [default: 8080]")  # fmt: skip
@option("--api-key", is_own=True, metavar="KEY", section=SERVER, help="Ask every client for this key.")
@option("--api-key-file", is_own=True, metavar="FILE", section=SERVER, help="A file whose first line is the key.")
@option("--cors", is_own=True, multiple=True, metavar="ORIGIN", section=SERVER,
        help="Let pages of this origin ask, such as http://localhost:3000 or 'http://localhost:*'.")  # fmt: skip
@option("--alias", is_own=True, multiple=True, metavar="NAME", section=SERVER,
        help="Another name for the model, for clients that insist on theirs.")  # fmt: skip
@option("--models", is_own=True, multiple=True, metavar="all|NAME,...", section=SERVER,
        help="Let requests name these pairs too, or all that are on this machine.")  # fmt: skip
@option("--queue", is_own=True, type=Integer(0, 10_000), default=16, metavar="N", section=SERVER,
        help="Requests that may wait; more are refused.  [default: 16]")  # fmt: skip
@option("--ssl-certfile", is_own=True, metavar="FILE", section=SERVER,
        help="Speak TLS (https, wss) with this certificate, in PEM.")  # fmt: skip
@option("--ssl-keyfile", is_own=True, metavar="FILE", section=SERVER,
        help="The certificate's private key, if it is in a file of its own.")  # fmt: skip
@preset_option
@model_options
@stacked(declared_options(Request, ANSWER))
@speculation_options
@sampling_options
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object once it serves.")
@report_options
@click.pass_obj
def serve(console: Console, /, pair: str | None, **values: Any) -> int:
    """Serve PAIR to editors, scripts and other programs, until Ctrl-C.

    They use the APIs of OpenAI, Anthropic, Ollama and llama-server.

    The options below are the defaults of every request. A request may change those of sampling and speculation.

    Four answers are written at once, as memory allows, or --parallel N; others wait. Ctrl-C lets them end; a second one
    leaves at once.

    --models lets requests name other pairs: as many as fit stay in memory, and others take the place of one of them.

    Only programs of this machine are answered, and no web pages. --api-key opens the way for other machines, and --cors
    for pages.
    """
    options = picked(ServeOptions, values)
    options.apply(console)
    options = replace(options, alias=called_as_typed(options.alias, pair, values["model"]))
    from localspec.server.listening import listener, require_certificate  # late: it brings the packages

    rules = _rules(options)
    require_certificate(options.ssl_certfile, options.ssl_keyfile)
    pairs = PairOptions.of(values, pair)
    promised = promised_settings(pairs)
    request = request_settings(values, promised.settings)
    others = Others(options.models, pairs, request, is_drafting_open(), console.warn)
    others.require()
    with listener(options.host, options.port) as door:
        _require_key(door, rules)
        settings = _parallel(present_settings(promised, console))
        log_file = None if options.log_file is None else Path(options.log_file)
        with Worker(log_file=log_file) as worker:
            another = partial(SharedWorker, "serve", log_file=log_file) if options.models else None
            return _Serving(console, options, rules, settings, request, others, worker, door, another).run()


def _parallel(settings: LoadSettings) -> LoadSettings:
    return settings if settings.parallel else replace(settings, parallel=PARALLEL)


def called_as_typed(alias: tuple[str, ...], pair: str | None, model: str | None) -> tuple[str, ...]:
    """Return the further names of a model, with the one that was typed: clients may say it too. A path is none."""
    typed = pair or model
    return alias if typed is None or "/" in typed else (*alias, typed)


def _rules(options: ServeOptions) -> Rules:
    """Return who may ask; raises UsageError."""
    from localspec.server.guard import Rules

    if options.api_key is not None and options.api_key_file is not None:
        raise UsageError("--api-key and --api-key-file exclude each other", hint="leave one of them out")
    key = options.api_key
    if options.api_key_file is not None:
        read = file_text(options.api_key_file, f"--api-key-file {options.api_key_file}", LONGEST_KEY)
        key = (read.splitlines() or [""])[0].strip()
    if key is not None and not (key and key.isascii() and key.isprintable()):
        raise UsageError("the API key is empty, or not plain ASCII", hint="--api-key KEY")
    if "*" in options.cors and key is None:
        raise UsageError("--cors '*' lets every page ask, and needs a key", hint="--api-key KEY, or --cors ORIGIN")
    wrong = next((each for each in options.cors if each != "*" and not ORIGIN.fullmatch(each)), None)
    if wrong is not None:
        raise UsageError(f"--cors {wrong!r} is no origin", hint="--cors http://localhost:3000, or 'http://localhost:*'")
    return Rules(key, options.host, frozenset(options.cors))


def _require_key(door: Door, rules: Rules) -> None:
    """Raise UsageError where other machines could ask without a key."""
    from localspec.server.listening import is_loopback

    if rules.key is None and not is_loopback(door):
        message = f"--host {rules.host} lets other machines in, and needs a key"
        raise UsageError(message, hint="--api-key KEY, or --host 127.0.0.1")


@dataclass(frozen=True)
class _Serving:
    """The pair, the door, and who may come in."""

    console: Console
    options: ServeOptions
    rules: Rules
    settings: LoadSettings
    request: Request
    others: Others
    worker: Worker
    door: Door
    another: Callable[[], ChatWorker] | None  # makes the worker of a further pair

    def run(self) -> int:
        from localspec.server.app import Routes
        from localspec.server.engine import EngineQueue
        from localspec.server.listening import PATIENCE, HttpServer
        from localspec.server.sharing import own_door

        servers: list[HttpServer] = []

        def leave() -> None:
            for server in servers:
                server.leave()
            if not servers:
                self.worker.cancel()

        live = Live(self.console)
        with own_door(self.settings) as own, asking(self.worker, live, self.console, cancel=leave) as loading:
            loaded = loading.load(self.settings)
            loading.live.erase()
            if loaded is None:
                return loading.stop.exit_code
            pairs = self._pairs(loaded)
            engine = EngineQueue(
                self.worker,
                loading.pairs,
                self.settings,
                most_waiting=self.options.queue,
                on_end=self._tell_answer,
                on_warning=self._tell_warning,
                on_loaded=pairs.loaded,
                on_session=self._note,
                another=self.another,
            )
            try:
                tls = (self.options.ssl_certfile, self.options.ssl_keyfile)
                servers.append(HttpServer(self._app(engine, pairs), engine, tls=tls, on_wait=self._tell_wait))
                self._tell(loaded)
                if not loading.is_stopped():  # a signal on the way here
                    asyncio.run(self._serve(servers, Routes(engine, pairs), loaded, own))
            finally:
                engine.end(PATIENCE)
        return loading.stop.exit_code

    async def _serve(self, servers: list[HttpServer], routes: Routes, loaded: Loaded, own: Door | None) -> None:
        from localspec.server.listening import HttpServer
        from localspec.server.sharing import SharedEngine

        beside: list[Any] = []
        if own is not None:
            shared = SharedEngine(routes.engine, self.worker, self.settings)
            shared.tell(loaded)
            servers.append(HttpServer(routes.app(shared.routes()), routes.engine))
            beside.append(servers[-1].serve([own]))
        await asyncio.gather(servers[0].serve([self.door]), *beside)

    def _app(self, engine: Any, pairs: Pairs) -> Any:
        from localspec.server.app import Routes
        from localspec.server.guard import Guard

        return Guard(Routes(engine, pairs, self._note).app(), self.rules, self._tell_bug)

    def _pairs(self, loaded: Loaded) -> Pairs:
        from localspec.server.fields import ServedPair
        from localspec.server.refusal import called
        from localspec.server.served_pairs import Pairs

        whole, name, facts, now = self.settings.name, called(self.settings), loaded.target, int(time.time())
        files = (Path(self.settings.target).stem, *([whole] if whole else []), *self.options.alias)
        aliases = tuple(dict.fromkeys(each for each in files if each != name))
        first = ServedPair(name, aliases, now, facts.bytes, facts.quant, loaded, self.settings, self.request)
        return Pairs(first, self.others.offers, self.others.served)

    def _tell(self, loaded: Loaded) -> None:
        from localspec.server.listening import address_of

        base = f"{'http' if self.options.ssl_certfile is None else 'https'}://{address_of(self.door)}"
        if self.options.as_json:
            facts = {"model": loaded.name, "n_ctx": loaded.n_ctx, "needs_key": self.rules.key is not None}
            write_json({"url": base, "page": f"{base}/#{self.rules.page_key}", **facts})
            self.console.on_error = None  # the one object is this
        else:
            write_out(f"serving {one_line(loaded.name)} at {base}/v1; Ctrl-C ends it\n")
            write_out(f"its page, with what it answers: {base}/#{self.rules.page_key}\n")

    def _tell_answer(self, stats: Stats) -> None:
        if stats.finished is not None and stats.passes:
            self._note(stats_line(stats, limit="max_tokens"))

    def _note(self, line: str) -> None:
        if not self.console.quiet and _is_read():
            self.console.note(line, "dim")

    def _tell_warning(self, warned: Warned) -> None:
        if _is_read():
            self.console.warn(warned.message)

    def _tell_wait(self) -> None:
        from localspec.server.listening import PATIENCE

        self._note(f"the answer at hand has {PATIENCE:g} s to end; Ctrl-C again leaves at once")

    def _tell_bug(self, error: Exception) -> None:
        reason = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
        self._tell_warning(Warned("request", f"a request failed: {reason}"))


def _is_read() -> bool:
    """Whether stderr takes a line now: a pipe that nobody reads, or a terminal that is halted, holds up no answer."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(select.select([], [sys.stderr], [], 0)[1])
    return True
