"""Every field of `run --json` and `run --events`, with its meaning. `scripts/docs` makes docs/json.md of it.

Milliseconds are of the wall clock. A pass is one evaluation of the target that commits tokens.
"""

from typing import Annotated, Any, NotRequired, TypedDict


class ModelFile(TypedDict):
    """One loaded model."""

    path: Annotated[str, "its file"]
    bytes: Annotated[int, "size of its files"]
    arch: Annotated[str, "architecture, as the file names it"]
    quant: Annotated[str, "type of most weights"]
    n_params: Annotated[int, "weights"]
    n_vocab: Annotated[int, "tokens of the vocabulary"]
    n_layer: Annotated[int, "layers"]
    kv_bytes: Annotated[int, "cache of a context of full length"]
    devices: Annotated[list[str], "devices that hold layers"]
    fingerprint: Annotated[str, "tells the file from another one of its name"]
    load_ms: Annotated[float, "loading it, opening its context included"]


class PairFields(TypedDict):
    """The models that answered."""

    name: Annotated[str, "the pair as it was named"]
    target: Annotated[ModelFile | dict[str, str], "the target; its path alone where it was not loaded"]
    draft: Annotated[ModelFile | None, "the draft; null without one"]


class Timings(TypedDict):
    """Times, in llama.cpp's names where it has one. Null where there was nothing to time."""

    cache_n: Annotated[int | None, "tokens of the prompt that were in the cache already"]
    prompt_n: Annotated[int | None, "tokens of the prompt, those of the cache included"]
    prepare_ms: Annotated[float | None, "template and tokenizer"]
    prompt_ms: Annotated[float | None, "reading the prompt"]
    prompt_per_second: Annotated[float | None, "tokens that were read, a second of prompt_ms"]
    predicted_n: Annotated[int, "tokens of the answer"]
    predicted_ms: Annotated[float | None, "decoding: all passes but the prompt's own"]
    predicted_per_second: Annotated[float | None, "tokens of these passes, a second of predicted_ms"]
    draft_n: Annotated[int, "draft tokens that were tested"]
    draft_n_accepted: Annotated[int, "of them, those that were kept"]
    ttft_ms: Annotated[float | None, "from the request to the first token"]
    first_token_ms: Annotated[float | None, "from Enter, or the start of the command, to the first token"]
    wall_ms: Annotated[float | None, "from Enter, or the start of the command, to the end of the answer"]
    parts_ms: Annotated[dict[str, float] | None, "wall_ms by part, which add up to it: start, load, read, write"]
    load_ms: Annotated[float | None, "loading the models"]


class PassMs(TypedDict):
    """Milliseconds by part. They add up to the time of the passes."""

    draft: Annotated[float, "drafting"]
    verify: Annotated[float, "the target's evaluation"]
    sample: Annotated[float, "distributions, and the rule that verifies"]
    other: Annotated[float, "all else between two passes"]


class PlainFields(TypedDict):
    """What plain decoding costs here: the median of passes that were measured."""

    tok_per_s: Annotated[float, "tokens a second"]
    source: Annotated[str, "probe: plain passes of this answer and of earlier ones"]
    n_tokens: Annotated[int, "how many plain passes"]
    ctx: Annotated[int, "tokens in the context at the last of them"]
    age_s: Annotated[float, "seconds since the last of them"]


class Spec(TypedDict):
    """What drafting did. The figures are defined in [Figures](figures.md)."""

    asked: Annotated[str, "the method that was asked for; drafters has what drafted"]
    k: Annotated[int | None, "nodes that a draft may have"]
    reproducible: Annotated[bool, "whether --reproducible held"]
    widths: Annotated[list[int] | None, "rows that a pass may have with --reproducible"]
    passes: Annotated[int, "passes, the prompt's own included"]
    drafting_passes: Annotated[int, "of them, those with a draft"]
    drafters: Annotated[dict[str, dict[str, int]], "tokens drafted and accepted, by what drafted them"]
    drafted: Annotated[int, "draft tokens that were tested"]
    accepted: Annotated[int, "of them, those that were kept"]
    forced: Annotated[int, "tokens before drafts, each the only one that the form allowed; no draft tokens"]
    emitted: Annotated[int, "tokens of the answer: accepted + forced + passes - cut"]
    cut: Annotated[int, "passes that a stop rule ended inside their accepted tokens"]
    tokens_per_pass: Annotated[float | None, "emitted / passes"]
    acceptance: Annotated[float | None, "accepted / drafted"]
    accepted_length: Annotated[float | None, "accepted tokens of a drafting pass"]
    accepted_length_over_k: Annotated[float | None, "the mean over drafting passes of accepted / depth"]
    mean_alpha: Annotated[float | None, "chance that a draft token which is looked at is kept"]
    tested_per_pos: Annotated[list[int], "drafting passes whose draft reached each position"]
    accepted_per_pos: Annotated[list[int], "of them, those that kept the token there"]
    reached_per_pos: Annotated[list[int], "of them, those that had kept all before it"]
    tokens_by_source: Annotated[dict[str, int], "tokens of the answer by origin, as `source` names it"]
    ms: Annotated[PassMs, "milliseconds of decoding by part, all passes together"]
    baseline: Annotated[PlainFields | None, "plain decoding; null with fewer than eight plain passes"]
    verdict: Annotated[str | None, "one sentence for people"]
    cause: Annotated[str | None, "its reason with figures, and what to type"]
    speedup: Annotated[float | None, "times as fast as plain decoding; null where that is not decided"]
    speedup_ci95: Annotated[list[float] | None, "its 95 % interval; null where the machine changed its pace"]


class Edge(TypedDict):
    """What the way to a verifier on another machine took, the round that sends the prompt left out."""

    rounds: Annotated[int, "questions to the verifier"]
    calls_per_token: Annotated[float | None, "rounds / tokens that they gave"]
    edge_ms: Annotated[float, "median milliseconds of drafting a round"]
    verify_ms: Annotated[float, "the same in the verifier, by its own clock"]
    rtt_ms: Annotated[float, "the same on the way, there and back"]
    up_bytes: Annotated[int, "bytes of messages to the verifier"]
    down_bytes: Annotated[int, "bytes of messages from it"]
    text_bytes: Annotated[int, "bytes that the prompt took"]
    bytes_per_token: Annotated[float | None, "bytes of both directions for a token"]
    hard_ratio: Annotated[float | None, "share of the drafted tokens that are hard for the draft; null for copies"]
    peak_bytes: Annotated[int | None, "largest resident size of the verifier's process; null where the edge stopped"]
    cache_share: Annotated[float, "share of the verifier's cache that the text took in the end"]
    ahead: Annotated[int, "passes of the draft model while a verdict was under way"]
    ahead_kept: Annotated[int, "tokens that could be drafted without a pass for that"]


class MemoryFields(TypedDict):
    """Resident memory."""

    peak_bytes: Annotated[int | None, "largest resident size of the engine's process during the answer"]
    kv_bytes: Annotated[int | None, "caches of both models at full length"]


class WarnLine(TypedDict):
    """Something that does not stop the work."""

    code: Annotated[str, "its kind"]
    message: Annotated[str, "one line for people"]


class LikelyToken(TypedDict):
    """One of the likeliest tokens of a place."""

    id: Annotated[int, "its number in the vocabulary"]
    s: Annotated[str, "its text alone; � for a part of a character"]
    logprob: Annotated[float | None, "its log-probability; null: it had no chance"]


class Logprobs(TypedDict, total=False):
    """What `--logprobs N` adds to a token."""

    logprob: NotRequired[
        Annotated[float | None, "its natural log-probability, with --logprobs; null: it had no chance"]
    ]
    top_logprobs: NotRequired[Annotated[list[LikelyToken], "the N likeliest tokens at its place, with --logprobs N"]]


class Token(Logprobs):
    """A token of `--json --tokens`, or of `--json --logprobs N`."""

    id: Annotated[int, "its number in the vocabulary"]
    s: Annotated[str, "its text alone; � for a part of a character"]
    source: Annotated[str, "accepted, corrected, bonus, plain or forced"]


class ResultFields(TypedDict):
    """The object of `--json`, and `result` of the line `end`."""

    schema: Annotated[str, "localspec.result/1"]
    text: Annotated[str, "the answer"]
    reasoning: Annotated[str | None, "what the model wrote before its answer"]
    finish_reason: Annotated[str, "stop, length, context, interrupted, timeout or error"]
    session: Annotated[str | None, "the conversation's ID; null where it is not saved"]
    left_out: Annotated[list[int] | None, "turns of the conversation, from 0, for which the context had no room"]
    seed: Annotated[int | None, "the seed that was used, drawn or given"]
    pair: Annotated[PairFields, "the models"]
    params: Annotated[dict[str, Any], "the settings, each `auto` as it was decided: see [params](#params)"]
    timings: Annotated[Timings, "times"]
    spec: Annotated[Spec, "drafting"]
    edge: Annotated[Edge | None, "the way to the verifier; null where the target is on this machine"]
    memory: Annotated[MemoryFields, "memory"]
    warnings: Annotated[list[WarnLine], "warnings"]
    versions: Annotated[dict[str, str], "of localspec and of what it runs on"]
    tokens: NotRequired[Annotated[list[Token], "the answer's tokens, with --tokens or --logprobs"]]


class ErrorFields(TypedDict):
    """The only field of the object is `error` where there is no answer. It holds:"""

    code: Annotated[int, "[the exit code](cli.md#exit-codes)"]
    kind: Annotated[str, "usage, network, ..., interrupted, timeout or terminated"]
    message: Annotated[str, "what is wrong"]
    hint: Annotated[str, "what to type, or empty"]
    detail: Annotated[dict[str, Any], "more of it by kind; `text` is what came of the answer"]


class LineFields(TypedDict):
    """Fields of every line."""

    v: Annotated[int, "version of the form: 1"]
    seq: Annotated[int, "number of the line, from 0"]
    t: Annotated[float, "seconds since the first line"]
    type: Annotated[str, "one of the following"]


class AskedFields(TypedDict):
    """The pair as it was named."""

    name: Annotated[str, "the pair"]
    target: Annotated[str, "the target's file"]
    draft: Annotated[str | None, "the draft's file"]


class Start(TypedDict):
    """The first line. A run that fails before it knows its settings has null for them."""

    run: Annotated[str, "a random name of this run"]
    pair: Annotated[AskedFields | None, "the models"]
    params: Annotated[dict[str, Any] | None, "the settings as they were asked: see [params](#params)"]
    seed: Annotated[int | None, "null: it will be drawn"]
    n_ctx: Annotated[int | None, "context in tokens; null: the model's own"]
    baseline: Annotated[None, "always null: `probe` tells of plain decoding"]


class LoadLine(TypedDict):
    """A tenth of a model is loaded."""

    what: Annotated[str, "target or draft"]
    frac: Annotated[float, "how much of it, 0 to 1"]


class Prefill(TypedDict):
    """The prompt is in the cache."""

    prompt_n: Annotated[int, "tokens of the prompt"]
    cache_n: Annotated[int, "of them, those that were in the cache already"]
    ms: Annotated[float, "reading the others"]
    prepare_ms: Annotated[float, "template and tokenizer"]
    seed: Annotated[int | None, "the seed, drawn or given"]
    n_ctx: Annotated[int | None, "context in tokens"]
    params: Annotated[dict[str, Any], "the settings as they were decided"]


class StepToken(TypedDict):
    """A token of a line `step`."""

    id: Annotated[int, "its number in the vocabulary"]
    s: Annotated[str, "its text alone; � for a part of a character"]
    src: Annotated[str, "of the answer: as `source` above; of a draft: accepted, rejected, cut, forced"]
    p: NotRequired[Annotated[float, "of a draft: the probability it was drawn with, where it has one"]]


class OutToken(StepToken, Logprobs):
    """A token that stands."""


class Expected(TypedDict):
    """What the planner promised of a pass."""

    tokens: Annotated[float | None, "tokens"]
    ms: Annotated[float, "milliseconds"]


class Sums(TypedDict):
    """Sums over the answer so far."""

    emitted: Annotated[int, "tokens of the answer"]
    drafted: Annotated[int, "draft tokens that were tested"]
    accepted: Annotated[int, "of them, those that were kept"]
    forced: Annotated[int, "tokens that the form forced"]
    passes: Annotated[int, "passes, the prompt's own included"]
    tok_per_s: Annotated[float | None, "tokens a second of decoding"]


class WayFields(TypedDict):
    """What one pass took on the way to a verifier on another machine."""

    up: Annotated[int, "bytes of messages to it"]
    down: Annotated[int, "bytes of messages from it"]
    ms: Annotated[float, "milliseconds until its answer came"]
    judge_ms: Annotated[float, "of these, those in the verifier"]
    n_looked: Annotated[int, "drafted tokens whose distribution is known"]
    n_hard: Annotated[int, "of them, those that are hard for the draft"]
    n_ahead: Annotated[int, "passes of the draft model meanwhile"]
    n_ready: Annotated[int, "tokens of the next draft that take no pass any more"]
    share: Annotated[float, "share of the verifier's cache that the text takes"]
    peak: Annotated[int, "largest resident size of the verifier's process in bytes, told with the last pass; else 0"]


class StepFields(TypedDict):
    """One pass. Number 0 is the token of the prompt's own pass, which `prefill` has timed."""

    i: Annotated[int, "its number, from 0"]
    pos: Annotated[int, "position of its first token in the context"]
    k: Annotated[int, "draft tokens that were tested"]
    depth: Annotated[int, "levels of the draft's tree"]
    rows: Annotated[int, "rows of the target's evaluation: the last token, the draft, and filling"]
    n_accepted: Annotated[int, "draft tokens that were kept"]
    n_forced: Annotated[int, "tokens before the draft, each the only one that the form allowed"]
    draft: Annotated[list[StepToken], "the draft, in the order in which it was made"]
    out: Annotated[list[OutToken], "the tokens that stand"]
    text: Annotated[str, "the answer's text that became certain"]
    reasoning: Annotated[str, "the same of the reasoning before the answer"]
    ms: Annotated[PassMs, "milliseconds of this pass by part"]
    drafter: Annotated[str, "who drafted; forced: the form alone; empty: nobody"]
    why: Annotated[str, "why the planner chose so"]
    expected: Annotated[Expected | None, "what the planner promised"]
    probe: Annotated[bool, "whether the pass measured plain decoding"]
    way: Annotated[WayFields | None, "the way to the verifier; null where the target is on this machine"]


class StepLine(StepFields):
    """A pass with the sums so far."""

    cum: Annotated[Sums, "sums so far"]


class Probe(TypedDict):
    """A plain pass was measured, now or in an earlier answer."""

    plain_ms: Annotated[float, "milliseconds of a token"]
    ctx: Annotated[int, "tokens in the context"]
    age_s: Annotated[float, "seconds since then"]


class End(TypedDict):
    """The last line of an answer."""

    tail: Annotated[str, "text that was held back until now"]
    result: Annotated[ResultFields, "the object of --json"]


class Failure(TypedDict):
    """The last line where there is no whole answer."""

    error: Annotated[ErrorFields, "the [error](#error)"]


LINES: dict[str, type] = {
    "start": Start,
    "load": LoadLine,
    "warn": WarnLine,
    "prefill": Prefill,
    "step": StepLine,
    "probe": Probe,
    "end": End,
    "error": Failure,
}
