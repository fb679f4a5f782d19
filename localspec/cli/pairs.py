"""`localspec pairs`: the catalogue of pairs, and which models draft for which."""

from __future__ import annotations

from typing import Any

import click

from localspec.cli.compare import explain, suggest
from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.output import write_json
from localspec.cli.params import Command, CommandGroup, option
from localspec.errors import NotFoundError
from localspec.models.available import is_here
from localspec.models.catalog import Catalog, load_catalog, user_path
from localspec.models.catalog_file import CatalogModel, CatalogPair
from localspec.models.names import parse
from localspec.models.store import BUNDLED, expand
from localspec.sanitize import one_line

LABELS = {
    "params_billions": "billion weights",
    "about_gb": "GB, about",
    "draft_about_gb": "draft GB, about",
    "draft_ratio": "draft / target",
    "builtin_drafting": "drafts by itself",
    "is_here": "on this machine",
}
BUNDLED_NOTE = "Comes with localspec: target of 4.7 and draft of 1.1 million weights; it continues stories."


@click.group(cls=CommandGroup, no_args_is_help=False, invoke_without_command=True)
@click.pass_context
def pairs(ctx: click.Context) -> int:
    """Names of pairs, and which drafts fit: list, search, show, add, rm, suggest, explain."""
    if ctx.invoked_subcommand is None:
        return _tell(load_catalog(), "", False)
    return 0


@pairs.command("list", cls=Command)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def list_pairs(console: Console, /, as_json: bool) -> int:
    """List the names for -m, each with its size, draft and licence.

    Sizes are approximate; localspec pull NAME --dry-run asks the hub for them. Your own names come first.
    """
    return _tell(load_catalog(), "", as_json)


@pairs.command(cls=Command)
@click.argument("term")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def search(console: Console, /, term: str, as_json: bool) -> int:
    """List the entries with TERM in name, family, repository or note."""
    return _tell(load_catalog(), term, as_json)


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def show(console: Console, /, name: str, as_json: bool) -> int:
    """Show the catalogue's entry of NAME, and whether its files are here."""
    catalog = load_catalog()
    entry = next((one for one in _entries(catalog) if one["name"] == name.lower()), None)
    if entry is None:
        expand(name)  # says what was probably meant, for what can be no name at all as well
        raise NotFoundError(f"'{one_line(name)}' is not in the catalogue", hint="localspec pairs list")
    entry = {**entry, "is_here": is_here(expand(name))}
    if as_json:
        write_json(entry)
    else:
        rows = [
            (LABELS.get(key, key.replace("_", " ")), _value(value))
            for key, value in entry.items()
            if value not in (None, "", [])
        ]
        write_out("".join(f"{key:<16} {value}\n" for key, value in rows))
    return 0


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@click.argument("pair", shell_complete=pair_names)
@option("--notes", default="", metavar="TEXT", section="Entry", help="A note of your own.")
@option("--replace", is_flag=True, section="Entry", help="Replace an existing name.")
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def add(console: Console, /, name: str, pair: str, notes: str, replace: bool, as_json: bool) -> int:
    """Give PAIR the name NAME; PAIR is written as after -m."""
    from localspec.models.user_catalog import add as add_entry

    parsed = parse(pair)
    expand(pair)
    path = add_entry(name, parsed, one_line(notes), replace=replace)
    if as_json:
        write_json({"name": name, "pair": str(parsed), "path": str(path)})
    else:
        write_out(f"{name} is {one_line(str(parsed))} (in {one_line(str(path))})\n")
    return 0


@pairs.command(cls=Command)
@click.argument("name", shell_complete=pair_names)
@option("--json", "as_json", is_flag=True, section="Output", help="One JSON object.")
@click.pass_obj
def rm(console: Console, /, name: str, as_json: bool) -> int:
    """Remove NAME, one of your own names. Files of models stay: localspec rm removes those."""
    from localspec.models.user_catalog import remove

    path = remove(name)
    if as_json:
        write_json({"name": name, "path": str(path)})
    else:
        write_out(f"{one_line(name)} is removed (from {one_line(str(path))})\n")
    return 0


pairs.add_command(suggest)
pairs.add_command(explain)


def _tell(catalog: Catalog, term: str, as_json: bool) -> int:
    wanted = term.casefold()
    rows = [entry for entry in _entries(catalog) if any(wanted in str(value).casefold() for value in entry.values())]
    if as_json:
        write_json({"user_catalog": str(user_path()), "pairs": rows})
        return 0
    if not rows:
        raise NotFoundError(f"no entry of the catalogue contains '{one_line(term)}'", hint="localspec pairs list")
    names = max(len(row["name"]) for row in rows)
    write_out("".join(f"{row['name']:<{names}}  {_line(row)}\n" for row in rows))
    return 0


def _entries(catalog: Catalog) -> list[dict[str, Any]]:
    """Return every entry as an object: the user's, the bundled pair, the models of the hub."""
    users = [_pair(pair) for pair in catalog.pairs.values()]
    users += [_model(model, catalog) for model in catalog.models.values() if model.is_users]
    bundled = [
        {"name": name, "pair": name, "origin": "bundled", "license": "mit", "tested": True, "notes": BUNDLED_NOTE}
        for name in BUNDLED
    ]
    hub = [_model(model, catalog) for model in catalog.models.values() if not model.is_users]
    return [*users, *bundled, *hub]


def _pair(pair: CatalogPair) -> dict[str, Any]:
    return {
        "name": pair.name,
        "pair": str(pair.pair),
        "origin": "yours" if pair.is_users else "built in",
        "tested": pair.tested,
        "notes": pair.notes,
    }


def _model(model: CatalogModel, catalog: Catalog) -> dict[str, Any]:
    drafts = catalog.drafts_of(model)
    pair = catalog.pair(model.name)
    first = drafts[0] if drafts else None
    return {
        "name": model.name,
        "pair": str(pair),
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
        "tested": model.tested,
        "notes": model.notes,
    }


def _line(row: dict[str, Any]) -> str:
    if "about_gb" not in row:
        return one_line(f"{row['pair']} · {row['notes']}" if row["notes"] else row["pair"])
    size = next(iter(row["about_gb"].values()))
    quant = next(iter(row["about_gb"]))
    draft = (
        f"draft {row['drafts'][0]} ({100 * row['draft_ratio']:.0f} % of the target's size)"
        if row["drafts"]
        else "no draft"
    )
    tested = "" if row["tested"] else ", not tested"
    return one_line(f"about {size:g} GB {quant} · {draft} · {row['license']}{tested}")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each:g}" for key, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(str(value))
