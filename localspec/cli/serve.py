"""`localspec serve`: pairs behind the HTTP APIs of OpenAI, Anthropic, Ollama and llama-server, until Ctrl-C."""

from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console
from localspec.cli.fetch import present_settings
from localspec.cli.option_sources import Integer
from localspec.cli.options import (
    declared_options,
    model_options,
    picked,
    preset_option,
    report_options,
    sampling_options,
    speculation_options,
)
from localspec.cli.params import Command, option, stacked
from localspec.cli.settings import PairOptions, of_ollamas, promised_settings, request_settings
from localspec.models.ollama import in_pair
from localspec.settings.request import ANSWER, LoadSettings, Request
from localspec.worker.client import Worker

SERVER = "Server"


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
    from localspec.cli import serving  # late: it brings the packages of the server
    from localspec.server.listening import listener, require_certificate

    values["alias"] = serving.called_as_typed(values["alias"], pair, values["model"])
    options = picked(serving.ServeOptions, values)
    options.apply(console)
    rules = serving.rules(options)
    require_certificate(options.ssl_certfile, options.ssl_keyfile)
    pairs = PairOptions.of(values, pair)
    promised = promised_settings(pairs)
    context = click.get_current_context()

    def request_of(settings: LoadSettings) -> Request:
        with context.scope(cleanup=False):  # a thread looks further pairs up
            return request_settings(values, settings)

    request = request_of(promised.settings)
    for line in () if console.quiet else of_ollamas(in_pair(promised.settings)):
        console.note(f"{line}, where a request has none" if "system" in line else line, "dim")
    others = serving.Others(options.models, pairs, request_of, console.warn)
    others.require()
    with listener(options.host, options.port) as door:
        serving.require_key(door, rules)
        settings = serving.with_lanes(present_settings(promised, console))
        with Worker(log_file=options.log_path) as worker:
            return serving.Serving(console, options, rules, settings, request, others, worker, door).run()
