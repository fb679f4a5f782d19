"""The JSON object of one answer (`--json`, and the `result` of the event stream's `end`): localspec.result/1.

`timings` has llama.cpp's field names, so that existing readers work. `json_fields` says what each field is, and
`localspec.ui.stats` defines every number.
"""

import dataclasses
import math
from typing import Any, cast

from localspec import __version__
from localspec.engine.events import Logprob, ModelFacts
from localspec.settings.request import LoadSettings, Request
from localspec.ui.json_fields import LikelyToken, Logprobs, ModelFile, PlainFields, ResultFields, Spec, Timings
from localspec.ui.stats import Baseline, Stats
from localspec.ui.summary import reason, ttft_ms, verdict

SCHEMA = "localspec.result/1"
# Settings that `params` leaves out: the first four are the result's `pair`, and no text depends on the others.
UNTOLD = ("target", "draft", "name", "expected", "cache_disk", "cache_ram")


def result(stats: Stats, settings: LoadSettings, request: Request, session: str | None = None) -> dict[str, Any]:
    loaded = stats.loaded
    made: ResultFields = {
        "schema": SCHEMA,
        "text": stats.text,
        "reasoning": stats.reasoning or None,
        "finish_reason": stats.finished.reason if stats.finished else "error",
        "session": session,
        "left_out": list(stats.started.left_out) if stats.started else None,
        "seed": stats.started.seed if stats.started else request.sampling.seed,
        "pair": {
            "name": settings.name,
            "target": _model(loaded.target) if loaded else {"path": settings.target},
            "draft": _model(loaded.draft) if loaded and loaded.draft else None,
        },
        "params": params(settings, request, stats),
        "timings": timings(stats),
        "spec": _spec(stats, request),
        "edge": stats.ways.wire(),
        "memory": {
            "peak_bytes": (stats.finished.peak_memory or None) if stats.finished else None,
            "kv_bytes": sum(m.kv_bytes for m in (loaded.target, loaded.draft) if m) if loaded else None,
        },
        "warnings": [{"code": warned.code, "message": warned.message} for warned in stats.warnings],
        "versions": {"localspec": __version__, **(loaded.versions if loaded else {})},
    }
    return cast(dict[str, Any], made)


def with_logprob(logprob: Logprob | None) -> Logprobs:
    if logprob is None:
        return {}
    top: list[LikelyToken] = [{"id": each.id, "s": each.text, "logprob": each.logprob} for each in logprob.top]
    return {"logprob": logprob.logprob, "top_logprobs": top}


def params(settings: LoadSettings, request: Request, stats: Stats | None = None) -> dict[str, Any]:
    held = dataclasses.asdict(settings)
    for name in UNTOLD:
        del held[name]
    asked = dataclasses.asdict(request)
    # JSON has no infinities, and a token is banned by one.
    bias = [[token, str(value) if math.isinf(value) else value] for token, value in request.sampling.logit_bias]
    chosen = {
        "max_tokens": request.max_tokens,
        "stop": list(request.stop),
        "raw": request.prompt is not None,
        "template": request.template,
        "template_args": [list(argument) for argument in request.template_args],
        "think": request.think,
        **held,
        **asked["sampling"],
        "logit_bias": bias,
        **asked["speculation"],
    }
    if stats is not None and stats.loaded is not None:
        chosen |= {"ctx": stats.loaded.n_ctx, "threads": stats.loaded.threads}
    if stats is not None and stats.started is not None:
        started = stats.started
        chosen |= {name: getattr(started, name) for name in ("method", "tree", "length", "k", "verify", "seed")}
        chosen |= {"is_seeded": started.is_seeded, "is_lossless": started.is_lossless}
    return chosen


def _model(facts: ModelFacts) -> ModelFile:
    return cast(ModelFile, dataclasses.asdict(facts))


def timings(stats: Stats) -> Timings:
    prefilled, waited = stats.prefilled, stats.waited
    prompt_ms = prefilled.ms if prefilled else None
    fresh = prefilled.prompt_n - prefilled.cache_n if prefilled else 0
    return {
        "cache_n": prefilled.cache_n if prefilled else None,
        "prompt_n": prefilled.prompt_n if prefilled else None,
        "prepare_ms": prefilled.prepare_ms if prefilled else None,
        "prompt_ms": prompt_ms,
        "prompt_per_second": 1e3 * fresh / prompt_ms if prompt_ms else None,
        "predicted_n": stats.emitted,
        "predicted_ms": stats.decode_ms if stats.passes else None,
        "predicted_per_second": stats.tok_per_s,
        "draft_n": stats.drafted,
        "draft_n_accepted": stats.accepted,
        "ttft_ms": ttft_ms(stats),
        "first_token_ms": stats.first_token_ms,
        "wall_ms": (waited.total or None) if waited else None,
        "parts_ms": dataclasses.asdict(waited) if waited else None,
        "load_ms": stats.loaded.load_ms if stats.loaded else None,
    }


def _spec(stats: Stats, request: Request) -> Spec:
    baseline, compared = stats.baseline, stats.comparison
    return {
        "asked": request.speculation.method,
        "k": stats.started.k if stats.started else None,
        "reproducible": bool(stats.started and stats.started.widths),
        "widths": list(stats.started.widths) or None if stats.started else None,
        "passes": stats.passes,
        "drafting_passes": stats.drafting_passes,
        "drafters": {name: {"drafted": n, "accepted": accepted} for name, (n, accepted) in stats.drafters.items()},
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "forced": stats.forced,
        "emitted": stats.emitted,
        "cut": stats.cut,
        "tokens_per_pass": stats.tokens_per_pass,
        "acceptance": stats.acceptance,
        "accepted_length": stats.accepted_length,
        "accepted_length_over_k": stats.accepted_over_k,
        "mean_alpha": stats.mean_alpha,
        "tested_per_pos": stats.tested,
        "accepted_per_pos": stats.accepted_per_pos,
        "reached_per_pos": stats.reached,
        "tokens_by_source": stats.by_source,
        "ms": {
            "draft": stats.draft_ms,
            "verify": stats.verify_ms,
            "sample": stats.sample_ms,
            "other": stats.other_ms,
        },
        "baseline": None if baseline is None else _plain(baseline),
        "verdict": verdict(stats) or None,
        "cause": reason(stats) or None,
        "speedup": stats.speedup,
        "speedup_ci95": [compared.low, compared.high] if compared and not compared.why_not else None,
    }


def _plain(baseline: Baseline) -> PlainFields:
    return {
        "tok_per_s": baseline.tok_per_s,
        "source": "probe",
        "n_tokens": baseline.n,
        "ctx": baseline.ctx,
        "age_s": round(baseline.age_s, 3),
    }
