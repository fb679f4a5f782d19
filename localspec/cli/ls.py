"""`localspec ls` and `localspec rm`: models of the hub's cache."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from localspec.chat.listing import when
from localspec.cli.complete import pair_names
from localspec.cli.console import in_room, write_text
from localspec.cli.fetch import require_yes
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, json_option, option
from localspec.cli.ps import in_memory
from localspec.errors import DeclinedError, NotFoundError, UsageError
from localspec.models.available import whole_models
from localspec.models.gguf.shards import size_on_disk
from localspec.models.hub.cache import PARTIAL, Cache, CachedFile
from localspec.models.hub.pulled import Receipts
from localspec.models.hub.remove import carry_out as remove_files
from localspec.models.hub.remove import plan_removal
from localspec.models.names import DraftChoice, HubName, ModelName, PathName, parse
from localspec.models.ollama import ollama_models
from localspec.models.other_programs import OLLAMA, ForeignModel, foreign_models, of_hub
from localspec.models.recent import RecentPair, recent_pairs
from localspec.models.store import expand
from localspec.sanitize import one_line
from localspec.settings.sizes import counted, size


@click.command("ls", cls=Command)
@json_option
def list_models(as_json: bool) -> int:
    """List the models that are here: in the Hugging Face cache, and the pairs that a chat used lately.

    Then come those of Ollama, LM Studio, llama.cpp and of folders called models. The cache's models may come from
    other programs too. The last line says what is in memory.
    """
    cache, receipts = Cache(), Receipts()
    recent, kept_elsewhere = recent_pairs(), foreign_models()
    absent = sorted(model.name for model in ollama_models() if not model.is_here)
    rows = [_row(name, files, receipts) for name, files in whole_models(cache)]
    left = [(path, path.stat().st_size) for path in cache.partials() if path.is_file()]
    ours = [(path, size) for path, size in left if path.name.endswith(PARTIAL)]
    if as_json:
        partials = [{"path": str(path), "bytes": size, "pulled": (path, size) in ours} for path, size in left]
        used = [{**asdict(pair), "is_here": pair.is_here, "bytes": _bytes(pair)} for pair in recent]
        foreign = [
            {"name": each.name, "program": each.program, "path": str(each.path), "bytes": each.bytes}
            for each in kept_elsewhere
        ]
        facts = {"cache": str(cache.root), "models": rows, "others": foreign, "absent": absent}
        write_json({**facts, "interrupted": partials, "recent": used})
        return 0
    cells = []
    for row in rows:
        origin = ("pulled" if row["pulled"] else "from elsewhere") + (", hash correct" if row["verified"] else "")
        cells.append((one_line(row["name"]), size(row["bytes"]), origin))
    lines = in_room(cells, right={1})
    if ours:
        lines.append(f"interrupted downloads: {_total(ours)}; pull the model again to go on, or rm its repository")
    if len(left) > len(ours):
        unfinished = _total([model for model in left if model not in ours])
        where = one_line(str(cache.root / "models--*/blobs"))
        lines.append(f"unfinished downloads of other programs: {unfinished}; rm leaves them: {where}/*.incomplete")
    lines = lines or [f"no models in {one_line(str(cache.root))}; names of pairs: localspec pairs list"]
    others = [(one_line(model.name), size(model.bytes), model.program) for model in kept_elsewhere]
    others += [(one_line(name), "missing", f"{OLLAMA}: ollama pull {one_line(name)}") for name in absent]
    if others:
        lines += ["", "kept by other programs, which rm leaves alone:", *in_room(others, right={1})]
    if recent:
        sizes = [size(_bytes(pair)) if pair.is_here else "gone" for pair in recent]
        cells = [(text, when(pair.used), one_line(pair.pair)) for text, pair in zip(sizes, recent, strict=True)]
        lines += ["", "used lately:", *in_room(cells, right={0})]
    write_text("\n".join([*lines, "", in_memory()]))
    return 0


def _bytes(pair: RecentPair) -> int:
    try:
        return sum(size_on_disk(Path(path)) for path in (pair.target, pair.draft) if path is not None)
    except OSError:
        return 0


def _total(left: list[tuple[Path, int]]) -> str:
    return f"{len(left)}, {size(sum(size for _, size in left))}"


def _row(name: HubName, files: list[CachedFile], receipts: Receipts) -> dict[str, Any]:
    file_receipts = [receipts.of(file.blob) for file in files]
    return {
        "name": str(name),
        "repo": name.repo,
        "commit": files[0].commit,
        "files": [str(file.link) for file in files],
        "bytes": sum(file.size for file in files),
        "pulled": all(receipt is not None and receipt.pulled for receipt in file_receipts),
        "verified": all(receipt is not None for receipt in file_receipts),
    }


@click.command("rm", cls=Command)
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=pair_names)
@option("--dry-run", is_flag=True, section="Removal", help="Show the files that would be removed, and stop.")
@option("--force", is_flag=True, section="Removal", help="Also remove files that other programs downloaded.")
@option("-y", "--yes", is_flag=True, section="Removal", help="Do not ask.")
@json_option
def remove_models(names: tuple[str, ...], as_json: bool, dry_run: bool, force: bool, yes: bool) -> int:
    """Remove models from the Hugging Face cache.

    NAME is a name from `localspec ls`, or a pair's name. A pair's name removes the target only, since other pairs may
    share its draft. TARGET+DRAFT removes both, and hf:ORG/REPO the whole repository. Files that localspec did not pull
    stay unless --force.
    """
    cache, receipts = Cache(), Receipts()
    removal = plan_removal(_wanted(names), cache, receipts)
    if not removal.files and not removal.partials:
        raise NotFoundError(f"{one_line(' '.join(names))} is not in the cache", hint="localspec ls")
    if removal.foreign and not force:
        raise DeclinedError(
            f"{one_line(removal.foreign[0].name)} was not pulled by localspec; other programs may need it",
            hint="--force removes it anyway",
            detail={"files": [str(file.link) for file in removal.foreign]},
        )
    n, freed = len({file.blob for file in removal.files}) + len(removal.partials), removal.bytes
    what = f"{counted(n, 'file')}, {size(freed)}"
    if not dry_run:
        require_yes("Remove", what, yes=yes)
        remove_files(removal, cache, receipts)
    files = [str(file.link) for file in removal.files] + [str(path) for path in removal.partials]
    wire = {"dry_run": dry_run, "files": files, "freed_bytes": freed}
    return write_result(wire, f"{'would remove' if dry_run else 'removed'} {what}", as_json=as_json)


def _wanted(names: tuple[str, ...]) -> list[HubName]:
    if not names:
        raise UsageError("name a model", hint="localspec rm NAME; names: localspec ls")
    wanted = []
    for ref in names:
        is_pair = not isinstance(parse(ref).draft, DraftChoice)
        pair = expand(ref)
        for name in (pair.target, pair.draft) if is_pair else (pair.target,):
            other = _foreign(name)
            if other is not None:
                message = f"{one_line(ref)} belongs to {other.program}, and localspec does not remove it"
                raise DeclinedError(message, hint=one_line(other.removal), detail={"path": str(other.path)})
            if not isinstance(name, HubName):
                message = f"'{one_line(ref)}' is not in the Hugging Face cache, and rm removes only files there"
                raise UsageError(message, hint="localspec ls")
            wanted.append(name)
    return wanted


def _foreign(name: ModelName | DraftChoice) -> ForeignModel | None:
    if isinstance(name, HubName):
        return None if Cache().find(name) is not None else of_hub(name)
    if not isinstance(name, PathName):
        return None
    path = os.path.realpath(os.path.expanduser(name.path))
    same = [model for model in foreign_models() if os.path.realpath(model.path) == path]
    return max(same, key=lambda model: model.name == name.label, default=None)
