"""`localspec rpc-serve`: lend this machine's devices to a localspec on another one, through ggml's own server."""

import click

from localspec.cli.console import Console, write_out
from localspec.cli.option_sources import Integer
from localspec.cli.options import declared_option
from localspec.cli.output import write_json
from localspec.cli.params import Command, option
from localspec.sanitize import one_line
from localspec.settings.declaration import Group
from localspec.settings.lone_jobs import LendDevices
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import size
from localspec.worker.lone_jobs import answers

LOOPBACK = ("127.0.0.1", "localhost")


@click.command("rpc-serve", cls=Command)
@option("--host", default=LOOPBACK[0], metavar="ADDRESS", section="Server", help="[default: 127.0.0.1]")
@option("--port", type=Integer(1, 65535), default=50052, metavar="N", section="Server", help="[default: 50052]")
@option("--device", multiple=True, metavar="NAME", section="Server",
        help="A device to lend, as localspec doctor names it.  [default: all GPUs, or the CPU]")  # fmt: skip
@declared_option(LoadSettings, "threads", group=Group("Server"))
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object once it serves.")
@click.pass_obj
def rpc_serve(
    console: Console, /, host: str, port: int, device: tuple[str, ...], threads: int | None, as_json: bool
) -> int:
    """Lend this machine's devices to localspec run --rpc HOST:PORT on another machine, until Ctrl-C.

    The protocol has no authentication and no encryption. Anyone who reaches the port can read and write this process's
    memory. Listen beyond this machine on a trusted network only. One client is served at a time.
    """
    endpoint = f"{host}:{port}"
    console.warn(
        f"whoever reaches {endpoint} controls this process: the RPC protocol has no authentication and no encryption"
        + ("" if host in LOOPBACK else "; keep it on a trusted network, behind a firewall")
    )
    for facts in answers(LendDevices(endpoint, device, threads)):
        console.on_error = None  # the one object is this
        if as_json:
            write_json(facts)
        else:
            lent = ", ".join(f"{row['name']} ({row['description']}, {size(row['free'])})" for row in facts["devices"])
            write_out(f"serving {one_line(lent)} at {endpoint}; Ctrl-C ends it\n")
    return 0
