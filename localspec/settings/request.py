"""Settings: typed, frozen, JSON-able. What the command line collects and the session does.

`LoadSettings` lives as long as the models; a `Request` holds everything that may differ from one answer to the next.
A field with `setting()` is declared here and nowhere else: `declaration.py` says what follows from it. Every check
raises UsageError with the option's name as people type it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.errors import UsageError
from localspec.settings import values
from localspec.settings.declaration import Group, check_declared, setting
from localspec.settings.structure import choices_text, grammar_text, regex_text, schema_text

MODEL = Group("Model")
ANSWER = Group("Prompt and answer", form="Answer")
SPECULATION = Group("Speculation (the four axes; see: localspec methods)", form="Drafting and verification")
SAMPLING = Group("Sampling", form="Sampling")
FORMS = ("schema", "regex", "grammar", "choices")  # fields of a request that give the answer a form
MOST_LOGPROBS = 100  # of one token
COUNT = 2**31 - 1  # the largest number that llama.cpp takes


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Which models, where, and how they are held. Paths are absolute; `draft` None means no draft model."""

    target: str
    draft: str | None = None
    name: str = ""  # the pair reference in its canonical spelling
    expected: tuple[str, str] | None = None  # a target's name and its file's fingerprint when it answered before
    ctx: int | None = setting(
        None, "--ctx", aliases="--ctx-size --num-ctx", group=MODEL, low=1, high=COUNT, nothing="auto", is_length=True,
        default_help="4096, and more once a text needs it", help="Context in tokens.",
    )  # fmt: skip
    threads: int | None = setting(None, "--threads", aliases="-t", group=MODEL, low=1, high=512, help="CPU threads.")
    gpu: str = setting(
        "auto", "--gpu", aliases="-ngl --gpu-layers --n-gpu-layers", group=MODEL, metavar="auto|off|all|N",
        choices=("auto", "off", "all"), parse=values.layers, help="Target layers on a GPU.",
    )  # fmt: skip
    draft_gpu: str = setting(
        "auto", "--draft-gpu", aliases="-ngld --gpu-layers-draft --n-gpu-layers-draft", group=MODEL,
        metavar="auto|off|all|N", choices=("auto", "off", "all"), parse=values.layers, help="Draft layers on a GPU.",
    )  # fmt: skip
    rpc: tuple[str, ...] = setting(
        (), "--rpc", group=MODEL, metavar="HOST:PORT,...", parse=values.servers,
        help="RPC servers whose devices take layers too.",
    )  # fmt: skip
    verifier: str | None = setting(
        None, "--verifier", group=MODEL, metavar="ws://HOST:PORT", parse=values.verifier_address,
        default_help="the target is here", help="The target is on another machine, at its server; -m names the draft.",
    )  # fmt: skip
    verifier_key_file: str | None = setting(
        None, "--verifier-key-file", group=MODEL, metavar="FILE", parse=values.absolute,
        default_help="LOCALSPEC_VERIFIER_KEY", help="A file whose first line is the verifier's API key.",
    )  # fmt: skip
    verifier_ca: str | None = setting(
        None, "--verifier-ca", group=MODEL, metavar="FILE", parse=values.absolute, default_help="the system's",
        help="Certificates to trust, for wss:// with a certificate of your own.",
    )  # fmt: skip
    lora: tuple[tuple[str, float], ...] = setting(
        (), "--lora", group=MODEL, metavar="FILE[:SCALE]", is_repeated=True, parse=values.adapter,
        spell=values.spelled_adapter, help="A LoRA adapter of the target.",
    )  # fmt: skip
    kv_type: str = setting(
        "f16", "--kv", aliases="-ctk -ctv --cache-type-k --cache-type-v", group=MODEL,
        choices=("f32", "f16", "q8_0", "q4_0"), help="Type of the attention cache.",
    )  # fmt: skip
    flash_attn: str = setting(
        "auto", "--flash-attn", aliases="-fa", group=MODEL, choices=("auto", "on", "off"), help="Flash attention."
    )
    reproducible: bool = setting(
        False, "--reproducible", group=MODEL,
        help="The text of plain decoding, bit for bit, with any method. The first load measures the possible widths.",
    )  # fmt: skip
    mmap: bool = setting(True, "--mmap", group=MODEL, help="Map the files into memory; --no-mmap reads them whole.")
    mlock: bool = setting(False, "--mlock", group=MODEL, help="Keep the weights in RAM.")
    parallel: int | None = setting(
        None, "--parallel", aliases="-np", group=MODEL, low=1, high=64, nothing="auto",
        default_help="1, on a server 4", help="Answers that are written at once, as memory allows.",
    )  # fmt: skip
    cache_disk: str = setting(
        "2GB", "--cache-disk", group=MODEL, metavar="SIZE", parse=values.memory_size,
        help="Disk limit for saved prompt states; 0 keeps none.",
    )  # fmt: skip
    cache_ram: str | None = setting(
        None, "--cache-ram", group=MODEL, metavar="SIZE", parse=values.memory_size, nothing="auto",
        default_help="a quarter of what is free", help="Memory limit for the states of other prompts.",
    )  # fmt: skip

    def check(self) -> None:
        check_declared(self)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The target's distribution, in llama.cpp's order. That is: bias, penalties, DRY, top-k, typical-p, top-p, min-p,
    XTC, temperature. Defaults are llama.cpp's. `temperature` 0 is the point mass on the most probable token.
    `draft_temperature` None drafts at `temperature`; any value is exact."""

    temperature: float = setting(
        0.8, "--temp", aliases="--temperature", group=SAMPLING, low=0, help="Temperature; 0 takes the likeliest token."
    )
    top_k: int = setting(40, "--top-k", group=SAMPLING, low=0, high=COUNT, help="Keep the k likeliest tokens; 0: all.")
    top_p: float = setting(
        0.95, "--top-p", group=SAMPLING, low=0, high=1, is_above=True,
        help="Keep the likeliest up to this mass; 1: all.",
    )  # fmt: skip
    min_p: float = setting(
        0.05, "--min-p", group=SAMPLING, low=0, high=1,
        help="Drop tokens less likely than this times the likeliest; 0: none.",
    )  # fmt: skip
    typical_p: float = setting(
        1.0, "--typical-p", aliases="--typical", group=SAMPLING, low=0, high=1, is_above=True,
        help="Locally typical sampling; 1: off.",
    )  # fmt: skip
    repeat_penalty: float = setting(
        1.0, "--repeat-penalty", group=SAMPLING, low=0.01, high=100, help="Divide logits of recent tokens; 1: off."
    )
    presence_penalty: float = setting(
        0.0, "--presence-penalty", group=SAMPLING, low=-100, high=100,
        help="Subtract once from a token used lately; 0: off.",
    )  # fmt: skip
    frequency_penalty: float = setting(
        0.0, "--frequency-penalty", group=SAMPLING, low=-100, high=100, help="Subtract for each recent use; 0: off."
    )
    penalty_last_n: int = setting(
        64, "--penalty-last-n", aliases="--repeat-last-n", group=SAMPLING, low=-1, high=COUNT,
        help="Penalties look at the last N tokens; 0: none, -1: the whole text.",
    )  # fmt: skip
    dry_multiplier: float = setting(
        0.0, "--dry-multiplier", group=SAMPLING, low=0, high=100,
        help="DRY: lower what would extend a repetition; 0: off.",
    )  # fmt: skip
    dry_base: float = setting(
        1.75, "--dry-base", group=SAMPLING, low=1, high=100, help="DRY grows by this with every token repeated."
    )
    dry_allowed_length: int = setting(
        2, "--dry-allowed-length", group=SAMPLING, low=0, high=COUNT, help="DRY spares repetitions shorter than this."
    )
    dry_penalty_last_n: int = setting(
        64, "--dry-penalty-last-n", group=SAMPLING, low=-1, high=COUNT,
        help="How many tokens DRY searches; 0: none, -1: the whole text.",
    )  # fmt: skip
    dry_sequence_breaker: tuple[str, ...] = setting(
        ("\n", ":", '"', "*"), "--dry-sequence-breaker", group=SAMPLING, metavar="TEXT", is_repeated=True,
        parse=values.unescape, spell=repr, judge=values.check_texts("--dry-sequence-breaker"),
        help="DRY counts no repetition across TEXT; 'none' removes all these texts.",
    )  # fmt: skip
    xtc_probability: float = setting(
        0.0, "--xtc-probability", group=SAMPLING, low=0, high=1,
        help="XTC: how often the likeliest tokens are left out; 0: off.",
    )  # fmt: skip
    xtc_threshold: float = setting(
        0.1, "--xtc-threshold", group=SAMPLING, low=0, high=1,
        help="XTC keeps the least likely of the tokens above this; above 0.5: off.",
    )  # fmt: skip
    logit_bias: tuple[tuple[int, float], ...] = setting(
        (), "--logit-bias", aliases="-l", group=SAMPLING, metavar="ID=BIAS", is_repeated=True,
        parse=values.token_bias, spell=lambda pair: f"{pair[0]}={pair[1]}", judge=values.check_biases,
        help="Add to the logit of token number ID.",
    )  # fmt: skip
    draft_temperature: float | None = setting(
        None, "--draft-temp", group=SPECULATION, low=0, default_help="--temp",
        help="Temperature of the draft; any is exact.",
    )  # fmt: skip
    seed: int | None = setting(
        None, "--seed", group=SAMPLING, low=0, high=2**64 - 1, nothing="random",
        help="Same seed, same text: exactly with --reproducible, else except at ties.",
    )  # fmt: skip

    def check(self) -> None:
        check_declared(self)


@dataclass(frozen=True, slots=True)
class Speculation:
    """The four independent axes: the method that drafts, the shape of drafts, their length, and the verifier."""

    method: str = setting("auto", "--method", group=SPECULATION, metavar="NAME", is_axis=True, help="How to draft.")
    tree: str = setting("chain", "--tree", group=SPECULATION, metavar="SHAPE", is_axis=True, help="Shape of the draft.")
    k: int | None = setting(
        None, "-k --draft-tokens", aliases="--num-draft-tokens --draft-max --draft-n", group=SPECULATION,
        metavar="N|auto", low=0, high=10**6, parse=values.draft_length, choices=("auto",), nothing="auto",
        help="Draft tokens per pass; 0: plain decoding.",
    )  # fmt: skip
    length: str = setting(
        "auto", "--length", group=SPECULATION, metavar="RULE", is_axis=True, help="Length rule of the draft."
    )
    verify: str = setting(
        "auto", "--verify", group=SPECULATION, metavar="RULE", is_axis=True, help="How the draft is verified."
    )
    options: tuple[tuple[str, str], ...] = setting(
        (), "-o --option", group=SPECULATION, metavar="KEY=VALUE", is_repeated=True, parse=values.key_value,
        spell="=".join, help="An option of the method (see: localspec methods).",
    )  # fmt: skip
    corpus: tuple[str, ...] = setting(
        (), "--corpus", group=SPECULATION, metavar="PATH|answers", is_repeated=True, parse=values.corpus_source,
        spell=values.spelled_source, help="Copy drafts from this file or folder too, or from your earlier answers.",
    )  # fmt: skip
    approximate: bool = setting(
        False, "--approximate", group=SPECULATION, help="Allow rules that change the output's distribution."
    )

    def check(self) -> None:
        """Raise UsageError for a draft length out of range, NotFoundError for files that are not there."""
        check_declared(self)
        values.check_paths("--corpus", self.corpus)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user, assistant or tool. `reasoning` is what came before an answer.

    `files` are the names of the texts that are attached to it, and part of its content. `ids` are the tokens that a
    model wrote it with, which may be others than those that its text is read as. `calls` are the tools that an answer
    called: JSON, a list as OpenAI has it, with objects for arguments. A tool's message has its `name` and `call_id`.
    """

    role: str
    content: str
    reasoning: str = ""
    files: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()
    calls: str = ""
    name: str = ""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to be generated: either `messages` through the chat template, or a raw `prompt`.

    With a `suffix` the model fills in what stands between `prompt` and it. `prediction` is what the answer may turn out
    to be: drafts are copied from it, and it is no part of the prompt. `tools` are those that the answer may call: JSON,
    a list as OpenAI has it. With `must_call` the form of the answer is that of a call.
    """

    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    suffix: str | None = None
    prediction: str | None = None
    tools: str | None = None
    must_call: bool = False
    max_tokens: int | None = setting(
        None, "--max-tokens -n", aliases="--predict --n-predict --num-predict", group=ANSWER, low=1, high=COUNT,
        default_help="when the model stops", help="Stop after N tokens.",
    )  # fmt: skip
    stop: tuple[str, ...] = setting(
        (), "--stop", aliases="-r --reverse-prompt", group=ANSWER, metavar="TEXT", is_repeated=True,
        parse=values.unescape, spell=repr, judge=values.check_texts("--stop"),
        help=r"Stop before TEXT; \n is a newline.",
    )  # fmt: skip
    template: str | None = setting(  # overrides the model's own chat template
        None, "--template", aliases="--chat-template --chat-template-file", group=ANSWER,
        metavar="NAME|FILE", in_chat=False, default_help="the model's own",
        help="Chat template: chatml, gemma, ..., none, one of the model's file by name, or a file.",
    )  # fmt: skip
    template_args: tuple[tuple[str, Any], ...] = setting(
        (), "--template-arg", group=ANSWER, metavar="KEY=TEXT", is_repeated=True,
        parse=values.template_argument, spell=values.spelled_argument,
        help="A variable of the chat template; TEXT may be JSON.",
    )  # fmt: skip
    think: str = setting(
        "auto", "--think", group=ANSWER, choices=("auto", "on", "off"),
        help="Reasoning before the answer, where the chat template can switch it.",
    )  # fmt: skip
    schema: str | None = setting(
        None, "--schema", aliases="--json-schema --json-schema-file", group=ANSWER, metavar="SCHEMA",
        parse=schema_text, default_help="any text",
        help="The answer is JSON of this schema: a file, JSON, or 'name, age int, tags[], items[name, qty int]'.",
    )  # fmt: skip
    schema_compact: bool = setting(
        False, "--schema-compact", group=ANSWER,
        help="The JSON of --schema has no white space between its parts.",
    )  # fmt: skip
    regex: str | None = setting(
        None, "--regex", group=ANSWER, metavar="REGEX", parse=regex_text, default_help="any text",
        help="The answer matches this regex.",
    )  # fmt: skip
    grammar: str | None = setting(
        None, "--grammar", aliases="--grammar-file", group=ANSWER, metavar="GRAMMAR",
        parse=grammar_text, default_help="any text",
        help="The answer is a text of this grammar: a file or its text, GBNF or Lark.",
    )  # fmt: skip
    choices: str | None = setting(
        None, "--choices", group=ANSWER, metavar="A,B,C", parse=choices_text, default_help="any text",
        help="The answer is one of these, or of the lines of a file.",
    )  # fmt: skip
    sampling: Sampling = field(default_factory=Sampling)
    speculation: Speculation = field(default_factory=Speculation)
    logprobs: int | None = None  # log-probabilities of each token, and of so many of the likeliest at its place
    prompt_ids: tuple[int, ...] = ()  # the tokens of the prompt, in place of its text
    scores_prompt: bool = False  # the log-probability of each token of the prompt is wanted
    is_after_sampler: bool = False  # of the distribution that a token was drawn from, not of the model's row
    details: bool = False  # Committed events carry the draft tokens and their probabilities
    keeps: bool = False  # what was read of it may be kept on disk
    reads_ahead: bool = False  # nothing is answered: the last message is being written, and its start is read
    cold: bool = False  # as after loading: nothing of earlier answers is in a cache or in a drafter's memory
    prompt_tokens: int | None = None  # cut the prompt to its first so many tokens
    template_file: str = ""  # what the person named as `template`, for errors
    resumes: bool = False  # the answer goes on with the last message, which is the assistant's
    opens_turn: bool = True  # the prompt ends where the assistant's turn begins
    continues: bool = False  # a model without a chat template continues the text of a lone message
    shorten: bool = False  # leave out turns where the context has no room for all of them
    left_out: tuple[int, ...] = ()  # the turns, from 0 on, that the answer before was given without

    def check(self) -> None:
        self.sampling.check()
        self.speculation.check()
        check_declared(self)
        given = [f"--{name}" for name in FORMS if getattr(self, name) is not None]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} exclude each other", hint="leave one of them out")
        if given and self.suffix is not None:
            raise UsageError(f"{given[0]} and --suffix exclude each other", hint="leave one of them out")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LOGPROBS:
            reason = f"--logprobs {self.logprobs} is out of range: it must be from 0 to {MOST_LOGPROBS}"
            raise UsageError(reason, hint="--logprobs 5")
        if self.prompt_tokens is not None and not 1 <= self.prompt_tokens <= COUNT:
            reason = f"--prompt-tokens {self.prompt_tokens} is out of range: it must be at least 1"
            raise UsageError(reason, hint="localspec bench --help")

    def never(self, tokens: Sequence[int]) -> Request:
        """Return the request with `tokens` never sampled, whoever drafts: llama.cpp's chain begins so, too."""
        if not tokens:
            return self
        bias = (*self.sampling.logit_bias, *((token, -math.inf) for token in tokens))
        return replace(self, sampling=replace(self.sampling, logit_bias=bias))
