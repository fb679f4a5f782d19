"""`localspec completions`: what a shell has to be told once, made by click."""

import click
from click.shell_completion import get_completion_class

from localspec.cli.app import cli
from localspec.cli.complete import VARIABLE
from localspec.cli.console import write_out
from localspec.cli.params import Command


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completions(shell: str) -> int:
    """Print what makes SHELL complete commands, options, pairs, methods and files.

    \b
    bash  localspec completions bash > ~/.local/share/bash-completion/completions/localspec
    zsh   localspec completions zsh > ~/.zfunc/_localspec   (with fpath+=~/.zfunc before compinit)
    fish  localspec completions fish > ~/.config/fish/completions/localspec.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    complete = shell_class(cli, {}, "localspec", VARIABLE)
    write_out(complete.source_template % complete.source_vars() + "\n")
    return 0
