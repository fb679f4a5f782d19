"""Whether a draft fits a target, and if not, the tokens that differ: `pairs explain`, and `plan --hub` for many."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out
from localspec.cli.fetch import is_offline, online
from localspec.cli.live import Live
from localspec.cli.output import write_json
from localspec.cli.params import Command, json_option, option
from localspec.control.chain import NEXT
from localspec.errors import IncompatibleError, LocalspecError, NetworkError, UsageError
from localspec.models.candidates import (
    DraftCandidate,
    candidate,
    drafters_beside,
    local_candidates,
    look_at,
    remote_candidate,
)
from localspec.models.catalog import Catalog, CatalogModel, load_catalog
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.hub.files import quant_of
from localspec.models.hub.remote import Hub
from localspec.models.names import Alias, DraftChoice, HubName, ModelName, PairName, parse_draft, parse_model
from localspec.models.pair_check import PairReport
from localspec.models.plan.models import ModelPart
from localspec.models.remote_header import remote_header
from localspec.models.store import NotCachedError, expand, is_kind, locate
from localspec.sanitize import one_line, shown
from localspec.settings.sizes import counted, size

MOST = 6  # models on the hub that are looked at
SMALL, OTHERS = 0.1, 2  # of the target's bytes, for a draft of another family; how many are looked at
_WORDS = re.compile(r"[a-z]+|[0-9]+(?:\.[0-9]+)?b?")


@dataclass(frozen=True, slots=True)
class Seen:
    """A model that was looked at: its canonical name, what names its files, and its parts."""

    name: str
    source: ModelName
    part: ModelPart

    @property
    def info(self) -> ModelInfo:
        return self.part.seen

    @property
    def bytes(self) -> int:
        return self.info.bytes


def suggestions(console: Console, target: str, offline: bool) -> tuple[list[str], list[dict[str, Any]]]:
    """Return what could draft for a target, here, in the catalogue and on the hub: lines of what is not here, and all.
    Each is compared by its header, token by token. Of a model on the hub only that is downloaded, some megabytes. The
    order is that of tokens a pass over price."""
    live = Live(console)
    try:
        live.status("looking at the target")
        seen = _seen(target, offline)
        candidates = list(_candidates(seen, offline, live, console))
    finally:
        live.erase()
    candidates.sort(key=lambda draft: (draft.report is None, -draft.gain(seen.bytes), draft.size))
    lines = [_line(draft, seen) for draft in candidates if draft.where != "here" or not draft.can_draft(seen.bytes)]
    return lines or ["no draft to download was found"], [_wire(draft, seen) for draft in candidates]


@click.command(cls=Command)
@click.argument("target", shell_complete=pair_names)
@click.argument("draft", required=False, metavar="DRAFT", shell_complete=pair_names)
@option("--offline", is_flag=True, section="Search", help="Only files on this machine.")
@json_option
def explain(target: str, draft: str | None, as_json: bool, offline: bool) -> int:
    """Say whether DRAFT fits TARGET, and if not, why.

    The first tokens that differ are listed. The exit code is 6 if the draft does not fit. TARGET+DRAFT is understood,
    and the name of a pair.
    """
    if draft is None:
        named = expand(target)
        if isinstance(named.draft, DraftChoice):
            typed = shlex.quote(str(named.target))
            raise UsageError(f"which draft of {target}?", hint=f"localspec pairs explain {typed} DRAFT")
        target, draft = str(named.target), str(named.draft)
    big = _seen(target, is_offline(offline))
    small = _seen(draft, is_offline(offline), of=big.source)
    from localspec.prompt.chat_template import template_warnings  # late: it brings jinja2

    fit = candidate(big.part, small.part, small.name, "")
    report = fit.report
    assert report is not None, "it was looked at"
    if report.overlap is None:
        differing = template_warnings(big.info.chat_template, small.info.chat_template)
        report = replace(report, warnings=(*report.warnings, *differing))
    made = {
        "target": _model_wire(big),
        "draft": _model_wire(small),
        "size_ratio": small.bytes / big.bytes,
        **_report_wire(report),
        "worth": None if fit.worth is None else fit.worth.to_wire(),
    }
    if as_json:
        write_json(made)
    else:
        next_step = NEXT if fit.worth is not None and fit.worth.loses else ""
        lines = [*_verdict(big, small, report), *filter(None, (fit.worth_in_words(big.bytes), next_step))]
        write_out("".join(f"{line}\n" for line in lines))
    return 0 if report.fits else IncompatibleError.exit_code


def _seen(ref: str, offline: bool, *, of: ModelName | None = None) -> Seen:
    is_draft = of is not None
    name = _draft(ref) if is_draft else expand(str(parse_model(ref))).target
    try:
        # A kind of heads is looked for by its target; a file needs none.
        against = of if of is not None and is_kind(name) else Alias("storyteller")
        pair = locate(PairName(against, name) if is_draft else PairName(name))
        path = pair.draft if is_draft else pair.target
    except NotCachedError as missing:
        if offline or not isinstance(name, HubName):
            missing.hint = online(missing.hint)
            raise
        try:
            header, full = remote_header(name, Hub())
        except NetworkError as error:
            error.detail |= missing.detail
            raise
        return Seen(str(full), name, ModelPart.of(header, model_info(header, may_be_head=is_draft)))
    assert path is not None
    return Seen(str(name), name, look_at(path, may_be_head=is_draft))


def _draft(ref: str) -> ModelName:
    typed = parse_draft(str(parse_model(ref)))
    if isinstance(typed, DraftChoice):
        raise UsageError(f"'{typed.value}' is not a model that can be compared", hint="localspec plan TARGET")
    draft = expand(None, str(typed)).draft
    assert not isinstance(draft, DraftChoice), "a model was named"
    return draft


def _candidates(seen: Seen, offline: bool, live: Live, console: Console) -> Iterator[DraftCandidate]:
    """Yield candidates from here, the catalogue and the hub, each model once."""
    tried = {seen.source.repo} if isinstance(seen.source, HubName) else set()
    here = set()
    for local in local_candidates(seen.part):
        yield local
        for each in (local.name, *local.copies):
            here.add(each)
            if each.startswith("hf:") and (name := _repo(each.removeprefix("hf:"))) is not None:
                here.add(str(HubName(name.repo, quant=quant_of(name.file or ""))))
                # Another quantisation may draft where this one is too large, or cannot be read.
                may_have_better = local.report is None or (local.report.fits and not local.can_draft(seen.bytes))
                tried |= set() if may_have_better else {name.repo}
    listed = [
        model
        for model in _of_catalogue(seen, load_catalog())
        if model.source.repo not in tried and str(model.source) not in here
    ]
    hub = None if offline else _reached(live, console)
    if hub is None:
        for model in listed:
            about = model.size_gb * 1e9
            yield DraftCandidate(str(model.source), "catalogue", None, about, reason="it is not on this machine")
        return
    wanted = [(name, "hub") for name in drafters_beside(seen.source, hub) if str(name) not in here]
    wanted += [(model.source, "catalogue") for model in listed]
    tried |= {source.repo for source, _ in wanted}
    if len(wanted) < MOST:
        try:
            repos = hub.search(_query(seen))
            wanted += [(name, "hub") for repo in repos if (name := _repo(repo)) is not None and name.repo not in tried]
        except LocalspecError as error:
            live.erase()
            console.warn(error.message)
    for name, where in wanted[:MOST]:
        live.status(f"looking at {one_line(str(name))}")
        there = remote_candidate(seen.part, name, where, hub)
        if there.name not in here:
            yield there


def _reached(live: Live, console: Console) -> Hub | None:
    hub = Hub()
    try:
        hub.reach()
    except NetworkError as error:
        live.erase()
        console.warn(f"{error.message}; only files on this machine are compared")
        return None
    return hub


def _repo(repo: str) -> HubName | None:
    try:
        name = parse_model(f"hf:{repo}")
    except UsageError:
        return None
    return name if isinstance(name, HubName) and str(name) == f"hf:{repo}" else None


def _of_catalogue(seen: Seen, catalog: Catalog) -> list[CatalogModel]:
    """Return models of the catalogue that may draft for the target: its own drafts first, then its smaller kin."""
    own = catalog.of_repo(seen.source.repo) if isinstance(seen.source, HubName) else None
    family = own.family if own is not None else _family(seen, catalog)
    drafts = catalog.drafts_of(own) if own is not None else []
    by_size = sorted(catalog.models.values(), key=lambda model: model.size_gb)
    same = [
        model
        for model in by_size
        if model.family == family and model is not own and model.size_gb * 1e9 < 0.5 * seen.bytes
    ]
    if not drafts and not same:
        same = [model for model in by_size[:OTHERS] if model.size_gb * 1e9 < SMALL * seen.bytes]
    return list({model.name: model for model in (*drafts, *same)}.values())


def _family(seen: Seen, catalog: Catalog) -> str:
    text = re.sub("[^a-z0-9]", "", f"{seen.info.name} {seen.info.path.name}".lower())
    families = {model.family for model in catalog.models.values()}
    fitting = [family for family in families if re.sub("[^a-z0-9]", "", family) in text]
    return max(fitting, key=len, default="")


def _query(seen: Seen) -> str:
    words = [word for word in _WORDS.findall(seen.info.name.lower()) if not re.fullmatch(r"[0-9.]+b", word)]
    return " ".join(words[:3]) or seen.info.architecture


def _line(draft: DraftCandidate, seen: Seen) -> str:
    much = size(draft.size) if draft.bytes is not None else f"about {size(draft.size)}" if draft.size else "?"
    verdict = "; ".join(filter(None, (draft.verdict, draft.worth_in_words(seen.bytes))))
    also = f" (also {', '.join(draft.copies)})" if draft.copies else ""
    return one_line(f"{draft.name}{also} · {much} · {draft.where}: {verdict}")


def _wire(draft: DraftCandidate, seen: Seen) -> dict[str, Any]:
    return {
        "name": draft.name,
        "where": draft.where,
        "bytes": draft.bytes,
        "about_bytes": draft.about_bytes,
        "size_ratio": draft.size / seen.bytes if draft.size else None,
        "is_good": draft.is_good(seen.bytes),
        "can_draft": draft.can_draft(seen.bytes),
        "verdict": ", but ".join(filter(None, (draft.verdict, draft.too_large(seen.bytes)))),
        "worth": None if draft.worth is None else draft.worth.to_wire(),
        "copies": draft.copies,
        **({} if draft.report is None else _report_wire(draft.report)),
    }


def _model_wire(seen: Seen) -> dict[str, Any]:
    facts = {name: getattr(seen.info, name) for name in ("architecture", "quant", "n_params", "n_vocab")}
    return {"name": seen.name, "bytes": seen.bytes, **facts}


def _report_wire(report: PairReport) -> dict[str, Any]:
    shared = report.overlap
    return {
        "fits": report.fits,
        "overlap": shared and {"tokens": shared.shared, "share": shared.share, "share_of_sample": shared.use},
        "reasons": list(report.reasons),
        "vocabularies_differ": list(report.differs),
        "warnings": [*report.warnings],
        "n_different": report.n_different,
        "differences": [
            {"token": each.token, "target": shown(each.target), "draft": shown(each.draft)}
            for each in report.differences
        ],
    }


def _verdict(big: Seen, small: Seen, report: PairReport) -> list[str]:
    fitting = "fits: the same vocabulary" if report.overlap is None else "fits in part: by the tokens that both have"
    share = 100 * small.bytes / big.bytes
    left = report.n_different - len(report.differences)
    reasons = report.reasons or report.differs
    lines = [
        f"target {big.name} · {big.info.n_vocab} tokens, {size(big.bytes)}",
        f"draft {small.name} · {small.info.n_vocab} tokens, {size(small.bytes)} ({share:.0f} % of the target)",
        fitting if report.fits else "does not fit",
        *(f"  because {reason}" for reason in reasons),
        *(f"  {each}" for each in report.differences if not any(str(each) in reason for reason in reasons)),
        *([f"  and {counted(left, 'more token')}"] if left > 0 else []),
        *(f"  but {warning}" for warning in report.warnings),
    ]
    return [" " * (len(line) - len(line.lstrip(" "))) + one_line(line) for line in lines]
