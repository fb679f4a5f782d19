"""What `localspec serve` does once its options are read: who may ask, which pairs there are, and the serving itself."""

import asyncio
import contextlib
import os
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from localspec.cli.console import Console, write_out
from localspec.cli.live import Live
from localspec.cli.options import ReportOptions
from localspec.cli.output import write_json
from localspec.cli.pair_engine import asking
from localspec.cli.settings import PairOptions
from localspec.engine.events import Loaded, Warned
from localspec.errors import LocalspecError, NotFoundError, UsageError
from localspec.models.available import AvailablePair, find, offers
from localspec.models.catalog import load_catalog
from localspec.models.ollama import in_pair, is_named, without_tag
from localspec.sanitize import one_line
from localspec.server.app import Routes
from localspec.server.engine import ServerEngine
from localspec.server.fields import ServedPair
from localspec.server.guard import Guard, Rules
from localspec.server.listening import PATIENCE, Door, HttpServer, address_of, is_loopback
from localspec.server.refusal import called
from localspec.server.served_pairs import Pairs, other_names
from localspec.server.warm_engine import SharedEngine, own_door
from localspec.settings.request import LoadSettings, Request
from localspec.ui.inputs import file_text
from localspec.ui.stats import Stats
from localspec.ui.summary import stats_line
from localspec.worker.client import Worker
from localspec.worker.shared import SharedWorker

ALL = "all"
PARALLEL = 4  # answers at once
ORIGIN = re.compile(r"https?://[^/*]+(:\*)?|(?!https?:)[\w.+-]+://[^/]+")  # `*` is a port, or any page of an app
LONGEST_KEY = 4096  # bytes


@dataclass(frozen=True)
class ServeOptions(ReportOptions):
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

    @property
    def log_path(self) -> Path | None:
        return None if self.log_file is None else Path(self.log_file)


@dataclass(frozen=True)
class Others:
    """What --models names, and how each pair is loaded and asked. `tell` takes the remark of a pair."""

    names: tuple[str, ...]  # as typed, some by commas
    pairs: PairOptions
    request_of: Callable[[LoadSettings], Request]
    tell: Callable[[str], None]

    def require(self) -> None:
        here = self._here()
        for name in self._wanted():
            if not any(is_named(name, (each.ref, each.name)) for each in here):
                hint = f"localspec pairs add NAME {shlex.quote(name)}" if os.path.isfile(name) else "localspec ls"
                raise NotFoundError(f"--models: no model here is called {one_line(name)}", hint=hint)

    def offers(self) -> Sequence[AvailablePair]:
        if not self.names:
            return ()
        wanted = self._wanted()
        return [
            each for each in self._here() if not wanted or any(is_named(name, (each.ref, each.name)) for name in wanted)
        ]

    def served(self, offer: AvailablePair) -> ServedPair:
        """Return a pair to be loaded. A LoRA adapter belongs to the first pair. Raises LocalspecError."""
        pair = find(offer)
        if pair.remark:
            self.tell(pair.remark)
        settings = replace(with_lanes(self.pairs.settings(pair)), lora=(), expected=None)
        facts = int(time.time()), offer.target_bytes, offer.quant, None
        request = self.request_of(settings)
        return ServedPair(offer.ref, other_names(offer), *facts, settings, request, in_pair(settings))

    def _wanted(self) -> list[str]:
        names = [name.strip() for text in self.names for name in text.split(",") if name.strip()]
        return [] if ALL in names else names

    def _here(self) -> list[AvailablePair]:
        return [each for each in offers(load_catalog()) if each.where == "here"]


def with_lanes(settings: LoadSettings) -> LoadSettings:
    return settings if settings.parallel else replace(settings, parallel=PARALLEL)


def called_as_typed(alias: tuple[str, ...], pair: str | None, model: str | None) -> tuple[str, ...]:
    """Return the further names of a model, with the one that was typed: clients may say it too. A path is none."""
    typed = pair or model
    return alias if typed is None or "/" in typed else (*alias, typed)


def rules(options: ServeOptions) -> Rules:
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


def require_key(door: Door, rules: Rules) -> None:
    if rules.key is None and not is_loopback(door):
        message = f"--host {rules.host} lets other machines in, and needs a key"
        raise UsageError(message, hint="--api-key KEY, or --host 127.0.0.1")


@dataclass(frozen=True)
class Serving:
    console: Console
    options: ServeOptions
    rules: Rules
    settings: LoadSettings
    request: Request
    others: Others
    worker: Worker
    door: Door

    def run(self) -> int:
        server: HttpServer | None = None

        def leave() -> None:
            if server is None:
                self.worker.cancel()
            else:
                server.leave()

        live = Live(self.console)
        with own_door(self.settings) as own, asking(self.worker, live, self.console, cancel=leave) as loading:
            loaded = loading.load(self.settings)
            loading.live.erase()
            if loaded is None:
                return loading.stop.exit_code
            pairs = self._pairs(loaded)
            another = partial(SharedWorker, "serve", log_file=self.options.log_path) if self.options.models else None
            engine = ServerEngine(
                self.worker,
                loading.pairs,
                self.settings,
                most_waiting=self.options.queue,
                on_end=self._tell_answer,
                on_warning=self._tell_warning,
                on_loaded=pairs.loaded,
                on_session=self._note,
                another=another,
            )
            try:
                tls = (self.options.ssl_certfile, self.options.ssl_keyfile)
                app = Guard(Routes(engine, pairs, self._note).app(), self.rules, self._tell_bug)
                wait = f"what is being written has {PATIENCE:g} s to end; Ctrl-C again leaves at once"
                server = HttpServer(app, engine, tls=tls, on_wait=partial(self._note, wait))
                self._tell(loaded)
                if not loading.is_stopped():  # a signal on the way here
                    asyncio.run(self._serve(server, Routes(engine, pairs), loaded, own))
            finally:
                engine.end(PATIENCE)
        return loading.stop.exit_code

    async def _serve(self, server: HttpServer, routes: Routes, loaded: Loaded, own: Door | None) -> None:
        """Serve until a signal, this user's programs last: `ps` and `stop` find the server while its answers end."""
        if own is None:
            await server.serve([self.door])
            return
        engine = routes.engine

        def stop() -> None:
            self._note("stopped by localspec stop")
            engine.abort()
            signal.raise_signal(signal.SIGTERM)

        shared = SharedEngine(engine, self.worker, self.settings, stop)
        shared.tell(loaded)
        own_server = HttpServer(routes.app(shared.routes()), engine)
        beside = asyncio.create_task(own_server.serve([own]))
        try:
            await server.serve([self.door])
            await asyncio.to_thread(engine.join, PATIENCE)
        finally:
            shared.end(None)
            own_server.leave()
            await beside

    def _pairs(self, loaded: Loaded) -> Pairs:
        whole, name, facts, now = self.settings.name, called(self.settings), loaded.target, int(time.time())
        model = in_pair(self.settings)
        untagged = [] if model is None else [without_tag(model.name)]
        files = (Path(self.settings.target).stem, *([whole] if whole else []), *untagged, *self.options.alias)
        aliases = tuple(dict.fromkeys(each for each in files if each != name))
        begun = self.settings, self.request, model
        first = ServedPair(name, aliases, now, facts.bytes, facts.quant, loaded, *begun)
        return Pairs(first, self.others.offers, self.others.served)

    def _tell(self, loaded: Loaded) -> None:
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
            self._note(stats_line(stats))

    def _note(self, line: str) -> None:
        if not self.console.quiet and _is_read():
            self.console.note(line, "dim")

    def _tell_warning(self, warned: Warned) -> None:
        if _is_read():
            self.console.warn(warned.message)

    def _tell_bug(self, error: Exception) -> None:
        reason = error.message if isinstance(error, LocalspecError) else f"{type(error).__name__}: {error}"
        self._tell_warning(Warned("request", f"a request failed: {reason}"))


def _is_read() -> bool:
    """Whether stderr takes a line now: a pipe that nobody reads, or a terminal that is halted, holds up no answer."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(select.select([], [sys.stderr], [], 0)[1])
    return True
