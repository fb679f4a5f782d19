"""An option as it was typed: errors call it by that name, and not by another that it has."""

from __future__ import annotations

import re

import click

TYPED = "localspec.cli.spelling"  # where a context keeps its words
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def spelling(ctx: click.Context, option: click.Option) -> str:
    """Return how an option was typed, by the last word that names it; "" where none does."""
    words: list[str] = ctx.meta.get(TYPED, [])
    for word in reversed(words[: words.index("--")] if "--" in words else words):
        for flag in (*option.opts, *option.secondary_opts):
            if word.partition("=")[0] == flag or flag in _cluster(ctx, word):
                return flag
    return ""


def _cluster(ctx: click.Context, word: str) -> list[str]:
    """Return the short options of one word: -q and -n of -qn0. One that takes a value ends them."""
    if word[:1] != "-" or word[1:2] == "-":
        return []
    found = []
    options = [each for each in ctx.command.params if isinstance(each, click.Option)]
    for letter in word[1:]:
        found.append(f"-{letter}")
        option = next((each for each in options if found[-1] in each.opts), None)
        if option is None or not (option.is_flag or option.count):
            break
    return found


def as_typed(ctx: click.Context, text: str) -> str:
    """Return a text that begins with an option with that as it was typed, wherever the text has it."""
    begin = OPTION.match(text)
    options = [each for each in ctx.command.params if isinstance(each, click.Option)]
    option = next((each for each in options if begin and begin[0] in each.opts), None)
    typed = "" if option is None else spelling(ctx, option)
    if option is None or not typed:
        return text
    names = set(option.opts)
    return OPTION.sub(lambda found: typed if found[0] in names else found[0], text)
