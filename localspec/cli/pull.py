"""`localspec pull`: models of the hub into the hub's cache, hashes checked."""

import time
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import ask, carry_out, hub_names, is_attended, is_offline, make_plan_here, online
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, json_option, option
from localspec.errors import IncompatibleError, LocalspecError, NetworkError, NotFoundError, UsageError
from localspec.models.catalog import load_catalog
from localspec.models.hub.cache import Cache
from localspec.models.hub.files import drafters
from localspec.models.hub.problems import OFFLINE
from localspec.models.names import HubName
from localspec.models.pair_check import require_fit
from localspec.models.plan.estimate import estimate
from localspec.models.pull import Item, PullPlan
from localspec.models.store import expand, locate
from localspec.sanitize import one_line
from localspec.settings.sizes import size


@click.command(cls=Command)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=pair_names)
@option("--dry-run", is_flag=True, section="Download", help="Show the files and sizes, and stop.")
@option("-y", "--yes", is_flag=True, section="Download", help="Do not ask.")
@option("--offline", is_flag=True, section="Download", help="Only check whether everything is on this machine.")
@option("-q", "--quiet", is_flag=True, section="Output", help="No progress.")
@json_option
@click.pass_obj
def pull(
    console: Console, /, names: tuple[str, ...], as_json: bool, quiet: bool, offline: bool, dry_run: bool, yes: bool
) -> int:
    """Download the models of NAME: a pair's name, hf:ORG/REPO[@REV][:QUANT], or TARGET+DRAFT.

    They go into the Hugging Face cache, which other programs share, and are checked against the hub's SHA-256. An
    interrupted download continues where it stopped. Then target and draft are compared.

    HF_TOKEN is sent to the hub for gated and private models. HF_ENDPOINT, HF_HUB_CACHE and HF_HUB_OFFLINE are
    respected.
    """
    console.quiet = quiet
    if not names:
        raise UsageError("name a model", hint="localspec pull NAME; names: localspec pairs list")
    wanted = tuple(dict.fromkeys(name for ref in names for name in hub_names(ref)))
    if not wanted:
        for ref in names:
            locate(expand(ref))  # raises for what is not there
        return _tell((), ["nothing to download: the files are on this machine"], as_json, dry_run=False)
    if is_offline(offline):
        return _tell_cached(wanted, as_json)
    try:
        plan = make_plan_here(wanted, console)
    except NetworkError as error:
        if not (dry_run and error.detail.get("reason") == OFFLINE):
            raise
        return _tell_about(wanted, error, console, as_json=as_json)
    plan.require_space()
    if dry_run:
        rows = [f"{one_line(item.file.name)}  {size(item.file.size)}  {_state(item)}" for item in plan.items]
        total = f"{size(plan.missing)} to download, {size(plan.free)} free in {one_line(str(plan.folder))}"
        return write_result({**_wire(plan), "dry_run": True}, "\n".join([*rows, total]), as_json=as_json)
    began = time.monotonic()
    if is_attended() and not yes:
        ask(plan, "-y downloads without asking")
    warnings = carry_out(plan, console)
    seconds = time.monotonic() - began
    if not as_json:
        lines = [*(_summary(plan, name) for name in plan.names), *_offers(plan, wanted)]
        write_out("".join(f"{line}\n" for line in lines))
    more: list[str] = []
    misfits: list[IncompatibleError] = []
    for ref in names:
        try:
            more += _fit(ref)
        except IncompatibleError as error:
            misfits.append(error)
    more += [error.message for error in misfits[1:]]  # the first is the error of the command
    for warning in more:
        console.warn(warning)
    made = {**_wire(plan), "seconds": seconds, "warnings": [*warnings, *more]}
    if misfits:
        misfits[0].detail.update(made)  # the one object of --json is then the error's
        raise misfits[0]
    if as_json:
        write_json(made)
    return 0


def _fit(ref: str) -> list[str]:
    from localspec.models.candidates import look
    from localspec.prompt.chat_template import template_warnings  # late: it brings jinja2

    try:
        pair = locate(expand(ref))
        if pair.draft is None:
            return []
        target, draft = look(pair.target), look(pair.draft, may_be_head=True)
    except LocalspecError as error:
        return [f"the pair is not compared: {error.message}{error.advice}"]
    report = require_fit(target, draft)
    differing = template_warnings(target.chat_template, draft.chat_template) if report.overlap is None else ()
    return [*report.warnings, *differing]


def _tell_cached(wanted: tuple[HubName, ...], as_json: bool) -> int:
    cache = Cache()
    missing = [name for name in wanted if cache.find(name) is None]
    if missing:
        raise NotFoundError(
            f"{one_line(str(missing[0]))} is not on this machine, and downloads are switched off",
            hint=online(f"localspec pull {one_line(str(missing[0]))}"),
            detail={"missing": [str(name) for name in missing]},
        )
    return _tell(wanted, [f"{one_line(str(name))}: here" for name in wanted], as_json)


def _tell(
    names: tuple[HubName, ...], lines: list[str], as_json: bool, n_bytes: int = 0, *, dry_run: bool = True, **more: Any
) -> int:
    facts = {"names": [str(name) for name in names], "files": [], "download_bytes": n_bytes}
    return write_result({"dry_run": dry_run, **facts, **more}, "\n".join(lines), as_json=as_json)


def _tell_about(wanted: tuple[HubName, ...], error: NetworkError, console: Console, *, as_json: bool) -> int:
    cache, catalog, total, lines = Cache(), load_catalog(), 0, []
    for name in wanted:
        is_here = cache.find(name) is not None
        about = None if is_here else estimate(name, catalog)
        if about is None and not is_here:
            raise error
        lines.append(f"{one_line(str(name))}  {'here' if about is None else f'about {size(about.bytes)}'}")
        total += 0 if about is None else about.bytes
    console.warn(f"{error.message}; sizes are about, from the catalogue")
    return _tell(wanted, [*lines, f"about {size(total)} to download"], as_json, total, is_about=True)


def _state(item: Item) -> str:
    if item.is_cached:
        return "here" if item.is_verified else "here, not checked yet"
    return f"{size(item.have)} here" if item.have else "to download"


def _summary(plan: PullPlan, name: HubName) -> str:
    assert name.revision is not None, "plans name commits"
    items = [
        item for item in plan.items if item.listing.repo == name.repo and item.listing.commit.startswith(name.revision)
    ]
    came = "already here" if all(item.is_cached for item in items) else "pulled"
    return f"{one_line(str(name))}: {came}, hash correct"


def _offers(plan: PullPlan, wanted: tuple[HubName, ...]) -> list[str]:
    pulled = {(item.listing.repo, item.file.name) for item in plan.items}
    lines = []
    for name, model in zip(plan.names, wanted, strict=True):
        listing = next(each for each in plan.listings if each.repo == name.repo and each.commit[:7] == name.revision)
        drafts = drafters([file.name for file in listing.files], model)
        if drafts and not any((draft.repo, draft.file) in pulled for draft in drafts):
            files = one_line(", ".join(str(draft.file) for draft in drafts))
            lines.append(f"{files} beside it may draft for it: localspec plan {one_line(str(model))} --hub")
    return lines


def _wire(plan: PullPlan) -> dict[str, Any]:
    cache = Cache()
    return {
        "dry_run": False,
        "names": [str(name) for name in plan.names],
        "files": [
            {
                "repo": item.listing.repo,
                "commit": item.listing.commit,
                "file": item.file.name,
                "bytes": item.file.size,
                "sha256": item.file.sha256,
                "path": str(cache.link(item.listing.repo, item.listing.commit, item.file.name)),
                "was_cached": item.is_cached,
                "resumed_bytes": 0 if item.is_cached else item.have,
            }
            for item in plan.items
        ],
        "download_bytes": plan.missing,
        "free_bytes": plan.free,
    }
