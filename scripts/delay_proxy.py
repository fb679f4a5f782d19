"""A network that is slow on purpose: a proxy on this machine that delays what passes, and lets so much pass a second.

python scripts/delay_proxy.py --to 127.0.0.1:8080 --rtt 50 --mbit 10
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

CHUNK = 1 << 14


@dataclass(frozen=True, slots=True)
class Network:
    """`rtt` seconds there and back, and `rate` bytes a second in each direction; None: as fast as they come."""

    rtt: float = 0.0
    rate: float | None = None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, network: Network) -> None:
    """Hand on all that comes, each piece after half a round trip and the time that its bytes take."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

    async def deliver() -> None:
        while True:
            due, piece = await pieces.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not piece:
                break
            writer.write(piece)
            await writer.drain()

    delivering = asyncio.create_task(deliver())
    free = 0.0  # when the line has sent all before
    with contextlib.suppress(OSError):
        while not delivering.done():
            piece = await reader.read(CHUNK)
            free = max(free, loop.time()) + (0.0 if network.rate is None else len(piece) / network.rate)
            await pieces.put((free + network.rtt / 2, piece))
            if not piece:
                break
    with contextlib.suppress(OSError):
        await delivering
        writer.close()


async def serve(to: tuple[str, int], network: Network, port: int = 0) -> asyncio.Server:
    """Return a server that passes on to an address, as slowly as `network`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass_on(reader, back, network), _pass_on(there, writer, network))

    return await asyncio.start_server(connected, "127.0.0.1", port)


@contextlib.contextmanager
def running(to: tuple[str, int], network: Network) -> Iterator[int]:
    """Yield the port of such a server, which a thread runs until the block ends."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(serve(to, network))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()


def main() -> None:
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rtt", type=float, default=0.0, metavar="MS")
    parser.add_argument("--mbit", type=float, metavar="N")
    given = parser.parse_args()
    host, _, port = given.to.rpartition(":")
    network = Network(given.rtt / 1e3, None if given.mbit is None else given.mbit * 1e6 / 8)

    async def run() -> None:
        server = await serve((host, int(port)), network, given.port)
        print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


if __name__ == "__main__":
    main()
