"""`localspec show`: what a model's file says of itself, read from its header in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from localspec.cli.complete import pair_names
from localspec.cli.console import Console, write_out, write_text
from localspec.cli.fetch import headers_of, is_offline, warn_of_local
from localspec.cli.live import Live
from localspec.cli.output import write_json, write_result
from localspec.cli.params import Command, json_option, option
from localspec.errors import UsageError
from localspec.models.catalog import load_catalog
from localspec.models.gguf.header import Header
from localspec.models.gguf.info import ModelInfo, model_info
from localspec.models.gguf.layer_sizes import Anatomy, anatomy
from localspec.models.gguf.shards import read_model
from localspec.models.gguf.vocab import fingerprint
from localspec.models.hub.pulled import hash_of
from localspec.models.ollama import known_as
from localspec.models.plan.estimate import estimate
from localspec.models.store import NotCachedError, find_model
from localspec.sanitize import one_line, quoted, sanitize
from localspec.settings.sizes import counted, size

KV_TYPES = ("f16", "q8_0", "q4_0")
EXCERPT = 5  # lines of the chat template; --template shows all
WIDE = 100


@click.command(cls=Command)
@click.argument("model", shell_complete=pair_names)
@option("--sha256", "has_hash", is_flag=True, section="Output", help="Hash the whole file too.")
@option("--template", "has_template", is_own=True, is_flag=True, section="Output",
        help="The whole chat template and nothing else.")  # fmt: skip
@option("--offline", is_flag=True, section="Output", help="Only files on this machine, and the catalogue.")
@json_option
@click.pass_obj
def show(console: Console, /, model: str, has_hash: bool, has_template: bool, offline: bool, as_json: bool) -> int:
    """Show the facts in a model's file: architecture, sizes, cache, experts, tokenizer, chat template.

    MODEL is a GGUF file or a pair's name, whose target is shown. The header is checked as before a load; the weights
    are not read. Of a model that is not downloaded yet the header is read from the hub, some megabytes. Offline the
    catalogue's facts are shown, about.
    """
    source, ollama = "", None
    try:
        path = find_model(model).absolute()
        shown, ollama = describe(path), known_as(model.partition("+")[0], path)
    except NotCachedError as missing:
        headers, why = headers_of(missing, offline=is_offline(offline), console=console)
        if not headers:
            _show_estimate(missing, as_json=as_json)
            warn_of_local(missing, "localspec show", console)
            if not is_offline(offline):
                console.warn(f"{why}; the catalogue's facts are shown")
            return 0
        if has_hash:
            raise UsageError("a file that is not on this machine cannot be hashed", hint=missing.hint) from None
        source, shown = str(missing.wanted[0]), described(headers[missing.wanted[0]])
    hashes = _hashes(shown, console) if has_hash else {}
    own = {} if ollama is None else {"ollama": ollama.to_wire()}
    if as_json:
        there = {"source": source, "is_here": False, "is_about": False} if source else {}
        write_json({**shown.to_wire(), **({"sha256": hashes} if has_hash else {}), **there, **own})
    elif has_template:
        write_out(sanitize(shown.info.chat_template or "").rstrip("\n") + "\n")
    else:
        rows = [*_rows(shown, source), *(("sha256", f"{digest}  {name}") for name, digest in hashes.items())]
        facts = own.get("ollama", {}).items()
        rows += [("Ollama's", f"{name}: {json.dumps(each, ensure_ascii=False)}") for name, each in facts if each]
        write_text(f"{_lines(rows)}\n{_excerpt(shown.info.chat_template)}")
    return 0


def _show_estimate(missing: NotCachedError, *, as_json: bool) -> int:
    catalog = load_catalog()
    about = estimate(missing.wanted[0], catalog)
    if about is None:
        raise missing
    model, cache = about.model, {kind: about.anatomy.kv_per_token(kind) for kind in KV_TYPES}
    facts = {
        "name": model.name, "source": str(missing.wanted[0]), "is_here": False, "is_about": True,
        "n_params": round(1e9 * model.params), "bytes": about.bytes, "quant": about.quant,
        "n_ctx_train": model.context, "kv_bytes_per_token": cache, "license": model.license,
    }  # fmt: skip
    others = [f"{quant} {size(1e9 * gb)}" for quant, gb in model.about_gb.items() if quant != about.quant]
    drafts = [f"{row.name} ({1e11 * row.size_gb / about.bytes:.0f} % of its size)" for row in catalog.drafts_of(model)]
    rows = [
        ("model", f"{model.name}, {missing.wanted[0]}"),
        ("here", "no: all below is about, from the catalogue"),
        ("size", f"about {size(about.bytes)}, {about.quant}" + (f"; also {', '.join(others)}" if others else "")),
        ("parameters", f"about {model.params:g} billion" + (f", {model.active:g} a token" if model.active else "")),
        ("context", f"{model.context} tokens"),
        ("cache a token", ", ".join(f"about {size(n)} in {kind}" for kind, n in cache.items())),
        ("license", model.license),
        ("drafts", ", ".join(drafts) or "none known"),
        ("download", f"localspec pull {model.name}"),
        ("memory", f"localspec plan {model.name}"),
    ]
    return write_result(facts, _lines(rows), as_json=as_json)


def _lines(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"{name:<15}{one_line(text)}" for name, text in rows)


def _hashes(shown: Description, console: Console) -> dict[str, str]:
    live, digests, before = Live(console), {}, 0
    try:
        for path in shown.header.files:

            def report(done: int, before: int = before) -> None:
                live.status(f"hashing {(before + done) / shown.info.bytes:.0%}")

            digests[path.name] = hash_of(path, report)
            before += path.stat().st_size
    finally:
        live.erase()
    return digests


def _rows(shown: Description, source: str) -> Iterator[tuple[str, str]]:
    info, parts, vocab = shown.info, shown.anatomy, shown.info.vocab
    yield "model", info.name
    more = f" and {len(shown.header.files) - 1} more" if shown.header.parts else ""
    yield "file", f"{source}, not on this machine: only its header was read" if source else f"{info.path}{more}"
    yield "architecture", f"{info.architecture}, {info.n_params / 1e6:,.1f} million parameters"
    mix = ", ".join(f"{name} {size(n)}" for name, n in parts.types)
    yield "size", f"{size(info.bytes)}, {info.quant} ({mix})"
    layer = max((layer.dense + layer.experts for layer in parts.layers), default=0)
    head = "shared with the embedding" if parts.is_tied else size(parts.output)
    yield "layers", f"{info.n_layer}, {size(layer)} the largest; embedding {size(parts.embedding)}, head {head}"
    yield "width", f"{info.n_embd}, {counted(info.n_head, 'head')}, {info.n_head_kv} of the cache"
    window = f", window of {info.sliding_window} tokens in some layers" if info.sliding_window else ""
    yield "context", f"{info.n_ctx_train} tokens{window}"
    yield "cache a token", ", ".join(f"{size(parts.kv_per_token(kind))} in {kind}" for kind in KV_TYPES)
    if info.is_recurrent:
        yield "memory", "recurrent: it keeps a state, so drafts are chains, not trees"
    if parts.n_experts:
        yield "experts", f"{parts.n_experts}, {parts.n_used} used by a token"
    if parts.n_next:
        yield "next tokens", f"{counted(parts.n_next, 'layer')} for further tokens (MTP, NextN)"
    pre = f", pre-tokenizer {vocab.pre}" if vocab.pre else ""
    yield "tokenizer", f"{vocab.type} ({vocab.model}{pre}), {info.n_vocab} tokens"
    yield "special tokens", ", ".join(_special(shown))
    yield "fingerprint", f"{shown.tokenizer} of the tokenizer"


def _special(shown: Description) -> Iterator[str]:
    for name, is_added in (("bos", shown.info.vocab.add_bos), ("eos", shown.info.vocab.add_eos), ("eot", False)):
        token = shown.special(name)
        if token is not None:
            yield f"{name} {token['id']} '{token['text']}'" + (" (added to every text)" if is_added else "")


def _excerpt(template: str | None) -> str:
    if not template:
        return "chat template  none\n"
    lines = sanitize(template).splitlines()
    cut = [line if len(line) <= WIDE else line[: WIDE - 1] + "…" for line in lines[:EXCERPT]]
    more = "" if lines == cut else f", {len(template)} characters; all of it: localspec show --template MODEL"
    return f"chat template{more}\n" + "".join(f"  {line}\n" for line in cut)


@dataclass(frozen=True, slots=True)
class Description:
    """A model as its header describes it; `tokenizer` is the vocabulary's fingerprint."""

    header: Header
    info: ModelInfo
    anatomy: Anatomy
    tokenizer: str

    def to_wire(self) -> dict[str, Any]:
        info, parts, vocab = self.info, self.anatomy, self.info.vocab
        names = ("name", "architecture", "n_params", "bytes", "quant")
        counts = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_ctx_train", "sliding_window", "is_recurrent")
        return {
            "path": str(info.path),
            "files": [str(path) for path in self.header.files],
            **{name: getattr(info, name) for name in names},
            "types": dict(parts.types),
            **{name: getattr(info, name) for name in counts},
            "experts": {"n": parts.n_experts, "used": parts.n_used},
            "next_token_layers": parts.n_next,
            "kv_bytes_per_token": {kind: parts.kv_per_token(kind) for kind in KV_TYPES},
            "weights": {
                "embedding": parts.embedding,
                "output": parts.output,
                "output_is_embedding": parts.is_tied,
                "layers": [asdict(layer) for layer in parts.layers],
            },
            "tokenizer": {
                **{name: getattr(vocab, name) for name in ("model", "pre", "type")},
                "n_tokens": info.n_vocab,
                **{name: self.special(name) for name in ("bos", "eos", "eot")},
                **{name: getattr(vocab, name) for name in ("add_bos", "add_eos")},
                "fingerprint": self.tokenizer,
            },
            "chat_template": info.chat_template,
        }

    def special(self, name: str) -> dict[str, Any] | None:
        token: int | None = getattr(self.info.vocab, name)
        return None if token is None else {"id": token, "text": quoted(self.info.vocab.text(token))[1:-1]}


def describe(path: str | Path) -> Description:
    return described(read_model(path))


def described(header: Header) -> Description:
    info = model_info(header, may_be_head=True)
    return Description(header, info, anatomy(header), fingerprint(header, info.vocab))
