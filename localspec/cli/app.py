"""The command group: names, one line each, imported only when they are called.

Invariant: --help and --version import neither numpy nor llama_cpp nor any interface library.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, shell_complete

from localspec.cli.console import Console, is_terminal
from localspec.cli.habits import is_here, is_model
from localspec.errors import IncompatibleError, UsageError, near_name

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = {
    "run": ("localspec.cli.run:run", "Answer one prompt and print the answer (also: generate)."),
    "chat": ("localspec.cli.chat:chat", "Chat with a pair, full-screen; line by line with --plain."),
    "demo": ("localspec.cli.demo:demo", "Show in a minute what guesses gain on this machine."),
    "logs": ("localspec.cli.logs:logs", "Kept conversations: list, show, search, export, delete."),
    "pull": ("localspec.cli.pull:pull", "Download a pair from the hub and check it."),
    "ls": ("localspec.cli.ls:list_models", "List the models on this machine."),
    "rm": ("localspec.cli.ls:remove_models", "Remove models from the hub's cache."),
    "pairs": ("localspec.cli.pairs:pairs", "Names of pairs, and whether a draft fits."),
    "show": ("localspec.cli.show:show", "Show the facts in a model's file."),
    "plan": ("localspec.cli.plan:plan", "Say which draft pays, and whether the model fits."),
    "calibrate": ("localspec.cli.calibrate:calibrate", "Measure this machine's devices, and keep the figures."),
    "ps": ("localspec.cli.ps:ps", "List the models that are in memory (see: run --keep-alive)."),
    "stop": ("localspec.cli.ps:stop", "Take models out of memory."),
    "serve": ("localspec.cli.serve:serve", "Serve a pair to editors and programs (OpenAI's, Ollama's API)."),
    "rpc-serve": ("localspec.cli.rpc_serve:rpc_serve", "Lend this machine's devices to another one."),
    "doctor": ("localspec.cli.doctor.command:doctor", "Check this installation."),
    "bench": ("localspec.cli.bench:bench", "Measure methods against plain decoding, or compare two results."),
    "race": (
        "localspec.cli.race:race_command",
        "Answer one prompt plainly and with drafts, and compare.",
    ),
    "rank": ("localspec.cli.rank:rank", "Find the likeliest of many items as an answer, exactly."),
    "verify": ("localspec.cli.verify:verify", "Check that speculation changes nothing on your pair."),
    "heads": ("localspec.cli.heads:heads", "Draft heads for your models: train, eval, list, show, rm."),
    "drafts": ("localspec.cli.drafts:drafts", "Copies of a model in fewer bits, as its drafts: make, list, rm."),
    "early-exit": ("localspec.cli.early_exit:early_exit", "Find the layers of a model that draft best: tune."),
    "methods": ("localspec.cli.explain:methods", "List drafting methods, trees, lengths and verifiers."),
    "explain": ("localspec.cli.explain:explain", "Explain a method, a rule or a term, such as acceptance."),
    "config": ("localspec.cli.config:config", "Settings in config.toml: show, get, set, unset, edit, path."),
    "completions": ("localspec.cli.complete:completions", "Print the completion script for bash, zsh or fish."),
}
COMPLETE = "_LOCALSPEC_COMPLETE"  # click's scheme: the shell calls localspec with it, to complete a word
ALIASES = {
    "generate": "run",
    "prompt": "run",
    "completion": "completions",
    "list": "ls",
    "models": "ls",
    "download": "pull",
    "info": "show",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(ALIASES.get(name, name))
        if entry is None:
            return None if name.startswith("-") else _plugins().get(name, lambda: None)()
        module, _, attribute = entry[0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])
        if _plugins():
            with formatter.section("Commands of other packages"):
                formatter.write_dl([(name, "") for name in _plugins()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=summary) for name, (_, summary) in COMMANDS.items()]
        return [item for item in names if item.value.startswith(incomplete)] or super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; options of run or chat without their command are told, with the whole line to type."""
        flag = args[0].partition("=")[0] if args else ""
        own = {each for param in self.get_params(ctx) for each in param.opts}
        run = None
        if re.match(r"--?[a-z]", flag) and flag not in own and not ctx.resilient_parsing:
            run = self.get_command(ctx, "run")
        if run is not None and any(flag in (*param.opts, *param.secondary_opts) for param in run.params):
            try:
                parsed, _, _ = run.make_parser(click.Context(run)).parse_args(list(args))
                words = [parsed.get(name) for name in ("prompt", "text")]
                command = "run" if any(isinstance(each, str | tuple) and each for each in words) else "chat"
            except click.ClickException:
                command = "run"  # whatever is wrong with it, run says it
            hint = f"localspec {command} {shlex.join(args)}"
            raise UsageError(f"{flag} is an option of {command}, and no command stands before it", hint=hint)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say what was probably meant: a word that is no command is never taken for a prompt."""
        name, *words = args
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        if name == "help" and words:
            is_command = self.get_command(ctx, words[0]) is not None
            return super().resolve_command(ctx, [*words, "--help"] if is_command else ["explain", *words])
        if name == "help" or (name == "version" and set(words) <= set(ctx.help_option_names)):
            click.echo(_versions() if name == "version" and not words else ctx.get_help())
            ctx.exit()
        if name == "version":
            raise UsageError(f"version takes no {words[0]!r}", hint="localspec version")
        # A command that removes is never what a misspelt word is taken for.
        near = near_name(name, [each for each in (*COMMANDS, *ALIASES) if each != "rm"])
        if is_model(name) or (not near and is_here(name)):
            raise UsageError(f"{name!r} is a model, and no command", hint=f"localspec chat {name}")
        guess, text = f" Did you mean {near!r}?" if near else "", " ".join(args)
        quoted = f'"{text if len(text) <= 60 else f"{text[:60]}…"}"'
        message = f"there is no command {name!r}.{guess} To send it as a prompt: localspec run {quoted}"
        raise UsageError(message, hint="localspec --help")


@cache
def _plugins() -> dict[str, Callable[[], click.Command]]:
    """Return the commands of other installed packages (entry-point group `localspec.commands`), loaded when called.
    Calling one raises IncompatibleError where it does not load."""
    from importlib.metadata import entry_points  # late: most calls name a command of ours

    def load(entry: EntryPoint) -> click.Command:
        try:
            command: click.Command = entry.load()
        except Exception as error:
            package = entry.dist.name if entry.dist else entry.value
            reason = f"the command {entry.name!r} of the package {package} cannot be loaded: {error}"
            raise IncompatibleError(reason, hint=f"pip uninstall {package}") from error
        return command

    return {entry.name: partial(load, entry) for entry in entry_points(group="localspec.commands")}


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        inner = getattr(command, "commands", None)
        if inner is None:
            yield (name,), command
        else:
            yield from (((name, each), command) for each, command in inner.items())


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(_versions())
        ctx.exit()


def _versions() -> str:
    from localspec.cli.version import version_line  # late: it asks llama.cpp

    return version_line()


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print versions.")
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Exact speculative decoding for pairs of GGUF models, on llama.cpp.

    \b
    localspec run "Once upon a time"      answer once
    localspec chat                        talk
    cat notes.txt | localspec run "Summarise this"
    """
    if ctx.invoked_subcommand is not None:
        return None
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        click.echo(ctx.get_help(), err=True)
        return 2
    command = cli.get_command(ctx, "chat")
    assert command is not None
    with command.make_context("chat", [], parent=ctx) as chat_context:
        code: int = command.invoke(chat_context)
        return code


def call(args: list[str], console: Console) -> int:
    instruction = os.environ.get(COMPLETE)
    if instruction:
        return shell_complete(cli, {}, "localspec", COMPLETE, instruction)
    with cli.make_context("localspec", args, obj=console) as ctx:
        return cli.invoke(ctx) or 0
