"""`localspec pairs`: the catalogue of pairs, and which models draft for which."""

import sys
from contextlib import suppress
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, columns_of_stdout, in_room, is_terminal, write_text
from localspec.cli.draft_fit import explain
from localspec.cli.options import draft_option
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, CommandGroup, json_option, option
from localspec.errors import NotFoundError, UsageError
from localspec.models.available import Where, is_here, where
from localspec.models.catalog import Catalog, CatalogModel, load_catalog, user_path
from localspec.models.gguf.draft_kinds import KINDS
from localspec.models.names import PathName, parse
from localspec.models.store import BUNDLED, bundled_head, expand, typed
from localspec.sanitize import one_line
from localspec.settings.declaration import Group
from localspec.ui.columns import aligned

LABELS = {
    "name": "name",
    "pair": "files",
    "origin": "listed by",
    "family": "family",
    "params_billions": "weights",
    "about_gb": "size, about",
    "license": "licence",
    "context": "context",
    "drafts": "drafts",
    "draft_about_gb": "draft's size",
    "draft_ratio": "draft's share",
    "builtin_drafting": "drafts by itself",
    "heads": "EAGLE-3 head",
    "with_heads": "with a head",
    "tested": "tested here",
    "notes": "notes",
    "is_here": "on this machine",
}
FORMS = {
    "params_billions": "{:g} billion",
    "context": "{} tokens",
    "draft_about_gb": "about {:g} GB",
    "draft_ratio": "{:.0f} % of the target's size",
}
HEAD = ("", "name", "target, about", "draft, share", "licence")
END = (
    "here: on this machine. gone: its file is not there any more. share: the draft's size in % of the target's.\n"
    "Only storyteller is tested. Of the others, a download compares the vocabularies.\n"
    "Everything about one: localspec pairs show NAME\n"
)
BUNDLED_NOTE = "Comes with localspec, as a demonstration: it writes stories."


@click.group(cls=CommandGroup, aliases={"search": "list"}, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def pairs(ctx: click.Context) -> int:
    """Names of pairs, and whether a draft fits: list, show, add, rm, explain."""
    return _tell(load_catalog(), "", False) if ctx.invoked_subcommand is None else 0


@pairs.command("list", cls=Command)
@click.argument("term", default="", metavar="[TERM]")
@json_option
def list_pairs(term: str, as_json: bool) -> int:
    """List the names for -m, each with its size, draft and licence.

    With TERM, only those that have it in name, family, repository or note. Sizes are approximate; localspec pull NAME
    --dry-run asks the hub for them. Models on this machine come first.
    """
    return _tell(load_catalog(), term, as_json)


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@json_option
def show(name: str, as_json: bool) -> int:
    """Show the catalogue's entry of NAME, and whether its files are here."""
    catalog = load_catalog()
    entry = next((row for row in _entries(catalog) if row["name"] == name.lower()), None)
    if entry is None:
        expand(name)  # says what was probably meant, for what can be no name at all as well
        raise NotFoundError(f"'{one_line(name)}' is not in the catalogue", hint=_where_else(name, catalog))
    entry = {**entry, "is_here": is_here(expand(name))}
    rows = [(LABELS[key], _value(key, value)) for key, value in entry.items() if value not in (None, "", [])]
    return write_result(entry, "\n".join(f"{label:<16} {value}" for label, value in rows), as_json=as_json)


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@click.argument("pair", shell_complete=pair_names)
@draft_option(Group("Entry"))
@option("--notes", default="", metavar="TEXT", section="Entry", help="A note of your own.")
@option("--replace", is_flag=True, section="Entry", help="Replace an existing name.")
@json_option
@click.pass_obj
def add(console: Console, /, name: str, pair: str, draft: str | None, notes: str, replace: bool, as_json: bool) -> int:
    """Give PAIR the name NAME; PAIR is written as after -m."""
    from localspec.models.user_catalog import add as add_entry

    expand(pair, draft)
    path = add_entry(name, typed(pair, draft), one_line(notes), replace=replace)
    catalog = load_catalog()
    added = catalog.pairs[name].pair
    if catalog.built_in(name):
        console.warn(f"{name} now stands before the catalogue's own; localspec pairs rm {name} brings that back")
    text = f"{name} is {one_line(str(added))} (in {one_line(str(path))})"
    return write_result({"name": name, "pair": str(added), "path": str(path)}, text, as_json=as_json)


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@json_option
@click.pass_obj
def rm(console: Console, /, name: str, as_json: bool) -> int:
    """Remove NAME, one of your own names. Files of models stay: localspec rm removes those."""
    from localspec.models.user_catalog import remove

    path = remove(name)
    lost: list[str] = []
    with suppress(UsageError):  # another mistake in the file stays
        lost = load_catalog().lost(name)
    for other in lost:
        console.warn(
            f"{other} stands for {one_line(name)}, which is gone; to remove it too: localspec pairs rm {other}"
        )
    text = f"{one_line(name)} is removed (from {one_line(str(path))})"
    return write_result({"name": name, "path": str(path)}, text, as_json=as_json)


pairs.add_command(explain)


def _tell(catalog: Catalog, term: str, as_json: bool) -> int:
    wanted = term.casefold()
    rows = [entry for entry in _entries(catalog) if any(wanted in str(value).casefold() for value in entry.values())]
    if as_json:
        write_json({"user_catalog": str(user_path()), "pairs": rows})
        return 0
    if not rows:
        raise NotFoundError(f"no entry of the catalogue contains '{one_line(term)}'", hint="localspec pairs list")
    places = {row["name"]: where(row["name"]) for row in rows}
    rows.sort(key=lambda row: places[row["name"]] != "here")
    cells = [HEAD, *(_cells(row, places[row["name"]]) for row in rows)]
    lines = aligned(cells, right=())
    widest = max(len(line) for line, row in zip(lines, cells, strict=True) if len(row) == len(HEAD))
    if is_terminal(sys.stdout) and columns_of_stdout() < widest:
        lines = in_room([row[: len(HEAD) - 1] for row in cells], right=())  # the licence is told by `pairs show`
    write_text("\n".join([*lines, "", END]))
    return 0


def _where_else(name: str, catalog: Catalog) -> str:
    target = parse(name).target
    if isinstance(target, PathName):
        return f"localspec show {one_line(str(target))}"
    listed = any(entry["name"] == str(target) for entry in _entries(catalog))
    return f"localspec pairs show {target}" if listed else "localspec pairs list"


def _entries(catalog: Catalog) -> list[dict[str, Any]]:
    pairs = [
        {"name": each.name, "pair": str(each.pair), "origin": "yours", "tested": each.tested, "notes": each.notes}
        for each in catalog.pairs.values()
    ]
    bundled = [
        {
            "name": name,
            "pair": name,
            "origin": "bundled",
            "license": "mit",
            "with_heads": [f"{name}+{kind}" for kind in KINDS if bundled_head(name, kind)],
            "tested": True,
            "notes": BUNDLED_NOTE,
        }
        for name in BUNDLED
    ]
    models = [_model(model, catalog) for model in catalog.models.values()]
    own = [each for each in models if each["origin"] == "yours"]
    return [*pairs, *own, *bundled, *(each for each in models if each["origin"] != "yours")]


def _model(model: CatalogModel, catalog: Catalog) -> dict[str, Any]:
    drafts = catalog.drafts_of(model)
    first = drafts[0] if drafts else None
    return {
        "name": model.name,
        "pair": str(catalog.pair(model.name)),
        "origin": "yours" if model.is_users else "built in",
        "family": model.family,
        "params_billions": model.params,
        "about_gb": dict(model.about_gb),
        "license": model.license,
        "context": model.context,
        "drafts": [draft.name for draft in drafts],
        "draft_about_gb": None if first is None else first.size_gb,
        "draft_ratio": None if first is None else round(first.size_gb / model.size_gb, 3),
        "builtin_drafting": model.builtin,
        "heads": list(model.heads),
        "tested": model.tested,
        "notes": model.notes,
    }


def _cells(row: dict[str, Any], place: Where) -> tuple[str, ...]:
    begin = "" if place == "hub" else place, one_line(row["name"])
    if "about_gb" not in row:
        about = [row["notes"]] if row["origin"] == "bundled" else [row["pair"], row["notes"]]
        return (*begin, one_line(" · ".join(filter(None, about))))
    quant, size = next(iter(row["about_gb"].items()))
    draft = f"{row['drafts'][0]}, {100 * row['draft_ratio']:.0f} %" if row["drafts"] else "none"
    return (*begin, f"{size:g} GB {quant}", one_line(draft), one_line(row["license"]))


def _value(key: str, value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{size:g} GB in {quant}" for quant, size in value.items())
        case list():
            return ", ".join(map(one_line, value)) + (", not tried here" if key == "heads" else "")
        case float() | int():
            return FORMS[key].format(100 * value if key == "draft_ratio" else value)
    return one_line(value)
