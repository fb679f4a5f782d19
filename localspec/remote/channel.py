"""The edge's end of a session: messages over a connection that may break, with a person who may want to stop.

A connection that breaks is opened anew, the session is taken up, and the round that was on its way is asked again: the
verifier has its result still, or judges it once more. Nothing is committed meanwhile.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import msgspec

from localspec.engine.events import Event, Loading, Waiting, Way
from localspec.engine.protocols import Cancel, Cancelled, Clock
from localspec.errors import LocalspecError, NetworkError
from localspec.remote.connection import GLANCE, Connection, error_of
from localspec.remote.messages import Bye, Error, Hello, Result, ToEdge, ToVerifier, Verify, Wait, Welcome
from localspec.remote.messages import Cancel as Stop

PATIENCE = 120.0  # seconds in which a broken connection may come back
SILENT = 2.0  # seconds of silence before a person reads that the verifier is awaited
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 3.0  # seconds between two attempts: twice as many each time
WAITS = "waiting for the verifier"


class Channel:
    """Sends and receives. `tell` takes what a person should know while nothing comes."""

    def __init__(
        self, connection: Connection, cancel: Cancel, tell: Callable[[Event], None], clock: Clock = time.monotonic
    ) -> None:
        self.connection = connection
        self.n_broken = 0  # connections that broke and were opened anew
        self._cancel = cancel
        self._tell = tell
        self._clock = clock
        self._hello: Hello | None = None
        self._verify: Verify | None = None
        self._n_answers = 0  # that were begun
        self._message: ToEdge | None = None  # that came while nobody waited
        self._n_unwelcome = 0  # Hellos without a Welcome: what comes before it belongs to answers that are over
        self._lost: LocalspecError | None = None  # why nothing more is read of this connection
        self._broke_at: float | None = None  # when the connection of this round broke first
        self._pause = 0.0  # seconds before it is opened anew
        self._asked_at = 0.0  # when the last round was asked
        self._round_trip = Way(0, 0, 0.0, 0.0)  # of the last round; bytes are counted from `_counted` on
        self._counted = (0, 0)

    def taken(self) -> Way:
        """Return what the last round took on the way, and what was sent since this was asked before."""
        up, down = self.connection.up, self.connection.down
        counts = replace(self._round_trip, up=up - self._counted[0], down=down - self._counted[1])
        self._counted, self._round_trip = (up, down), Way(0, 0, 0.0, 0.0)
        return counts

    def send(self, message: ToVerifier) -> None:
        """Send a message; on a broken connection it is sent once that is open again. Raises NetworkError, Cancelled."""
        if isinstance(message, Hello):
            self._n_answers += 1
            message = msgspec.structs.replace(message, answer=self._n_answers)
            self._hello, self._verify, self._broke_at = message, None, None
            self._n_unwelcome += 1
        elif isinstance(message, Verify):
            self._verify, self._asked_at, self._broke_at = message, self._clock(), None
        elif isinstance(message, Bye):
            self._hello = self._verify = None
        self._put(message)

    def has_come(self) -> bool:
        """Whether `receive` need not wait: for a message, for a connection that is open, or since it is to stop."""
        if self._message is None and self._lost is None:
            self._message = self._next(0.0)
        if isinstance(self._message, Wait):
            self._say(self._message)
            self._message = None
        return self._message is not None or self._lost is not None or self._cancel()

    def receive(self) -> ToEdge:
        """Return the next message that answers one of ours. Raises Cancelled, NetworkError, and what an Error says."""
        heard = self._clock()
        while True:
            if self._cancel():
                if self._verify is not None:
                    self._put(Stop(self._verify.round))
                raise Cancelled
            if self._lost is not None:
                self._take_up()
                heard = self._clock()
            reply, self._message = self._message or self._next(GLANCE), None
            if reply is None:
                if self._clock() - heard > SILENT:
                    self._tell(Loading(WAITS, 0.0))
                continue
            heard = self._clock()
            if isinstance(reply, Error) and reply.answer in (0, self._n_answers):  # 0: an older verifier names none
                self._lost = error_of(reply)  # what else comes answers messages behind the refused one
                raise self._lost
            if isinstance(reply, Welcome):
                self._n_unwelcome = max(0, self._n_unwelcome - 1)
            if self._is_stale(reply):
                continue
            if isinstance(reply, Wait):
                self._say(reply)
            else:
                if isinstance(reply, Welcome) and self._hello is not None:
                    self._hello = msgspec.structs.replace(self._hello, session=reply.session)
                if isinstance(reply, Result):
                    self._round_trip = Way(0, 0, 1e3 * (heard - self._asked_at), reply.micros / 1e3, peak=reply.peak)
                return reply

    def _say(self, wait: Wait) -> None:
        """Tell a person how many are judged first."""
        self._tell(Waiting(wait.before) if wait.before else Loading(WAITS, 0.0))

    def close(self) -> None:
        self.connection.close()

    def _is_stale(self, reply: ToEdge) -> bool:
        """Whether a reply is that of an earlier answer or round, which was cancelled or answered already."""
        if self._n_unwelcome or isinstance(reply, Error):
            return True
        return isinstance(reply, Result) and (self._verify is None or reply.round != self._verify.round)

    def _put(self, message: ToVerifier) -> None:
        if self._lost is None:
            try:
                self.connection.send(message)
            except NetworkError as error:
                self._lost = error

    def _next(self, seconds: float) -> ToEdge | None:
        try:
            return self.connection.receive(seconds)
        except NetworkError as error:
            self._lost = error
            return None

    def _take_up(self) -> None:
        """Open the connection anew, and go on with the session. Raises Cancelled, NetworkError after PATIENCE."""
        while self._lost is not None:
            self._rest(self._lost)
            try:
                self.connection.reopen()
                self._lost, self._n_unwelcome = None, 0
                self.n_broken += 1
                if self._hello is not None:
                    welcome = self.connection.ask(self._hello, self._cancel)
                    if isinstance(welcome, Welcome):
                        self._hello = msgspec.structs.replace(self._hello, session=welcome.session)
                if self._verify is not None:
                    self._put(self._verify)
            except NetworkError as error:
                self._lost = error
                if error.detail.get("is_final"):
                    raise

    def _rest(self, why: LocalspecError) -> None:
        """Wait before the connection is opened anew, each time longer. Raises `why` after PATIENCE, and Cancelled."""
        now = self._clock()
        if self._broke_at is None:
            self._broke_at, self._pause = now, 0.0
        elif now - self._broke_at > PATIENCE:
            raise why
        if self._pause:
            self._tell(Loading(WAITS, 0.0))
        ends = time.monotonic() + self._pause
        while time.monotonic() < ends:
            if self._cancel():
                raise Cancelled
            time.sleep(GLANCE)
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
