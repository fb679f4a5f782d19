"""The words that localspec uses, each with one line and a few sentences.

`localspec explain TERM`, its completion, the help screen of the full-screen chat and docs/glossary.md read this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A word with one line (`short`), a few sentences (`text`), other spellings and related names."""

    name: str
    short: str
    text: str
    aliases: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name as it is typed: "KV cache" is kv-cache."""
        return key(self.name)

    def to_wire(self) -> dict[str, object]:
        """Return the term as a JSON object."""
        return {"term": self.name, "short": self.short, "text": self.text, "see": list(self.see)}


_TERMS = (
    # Models
    Term(
        "speculative decoding",
        "a cheap guess of several tokens, checked in one pass of the target",
        "Speculative decoding guesses several tokens cheaply and lets the target check all of them in one pass. A "
        "pass for several tokens often costs little more than a pass for one. So each correct guess saves time, "
        "and wrong guesses never change the distribution of the text.",
        ("speculation",),
        ("pass", "acceptance", "lossless"),
    ),
    Term(
        "target",
        "the large model, whose text you get",
        "The target is the large model. The text that localspec writes follows the target's distribution, whatever"
        " the draft guesses.",
        ("target model",),
        ("draft-model", "pair"),
    ),
    Term(
        "draft model",
        "a small model that guesses tokens for the target",
        "A draft model is a small model with the vocabulary of the target. It writes a few tokens ahead, and the "
        "target checks them. A poor draft model costs time, but it does not change the text's distribution.",
        ("draft", "drafter"),
        ("target", "pair", "acceptance"),
    ),
    Term(
        "pair",
        "a target with its draft model",
        "A pair is a target with its draft model, written TARGET+DRAFT. Both need the same vocabulary. localspec "
        "pairs list names known pairs, and localspec pairs explain TARGET DRAFT says whether two files fit.",
        (),
        ("target", "draft-model"),
    ),
    Term(
        "token",
        "a piece of text: a word, a part of a word or a sign",
        "Models read and write tokens, not letters. A token is a word, a part of a word or a sign. In English a "
        "token has about four letters. Lengths and speeds are counted in tokens.",
        ("tokens",),
        ("context",),
    ),
    Term(
        "vocabulary",
        "all tokens that a model knows",
        "The vocabulary is the list of all tokens that a model knows. A draft model can only draft for a target "
        "with the same vocabulary, and localspec compares the two lists before it loads the pair.",
        (),
        ("token", "pair"),
    ),
    Term(
        "GGUF",
        "the file format of llama.cpp's models",
        "GGUF is the file format of llama.cpp. One file holds weights, vocabulary and chat template. The command "
        "localspec show FILE.gguf prints its facts.",
        (),
        ("quantisation",),
    ),
    Term(
        "quantisation",
        "weights kept in fewer bits, for less memory and faster passes",
        "Quantisation keeps a model's weights in fewer bits. Names such as Q4_K_M or Q8_0 tell the number of bits."
        " Fewer bits need less memory and less time, and change the model's distribution a little.",
        ("quantization", "quant"),
        ("gguf",),
    ),
    # A pass and its tokens
    Term(
        "pass",
        "one evaluation of the target; it writes one token or more",
        "A pass is one evaluation of the target. A plain pass writes one token. A pass that checks a draft writes "
        "every accepted token and one more token of the target's own.",
        ("passes",),
        ("accepted", "rows", "prefill"),
    ),
    Term(
        "rows",
        "the tokens that the target evaluates together in one pass",
        "A pass evaluates one row for the last token and one for each drafted token. How much more time several "
        "rows need depends on the machine; localspec calibrate PAIR measures it.",
        ("row", "width"),
        ("pass", "k"),
    ),
    Term(
        "drafted",
        "guessed tokens that the target has checked",
        "A drafted token is a guess that the target has checked in a pass. It was accepted or refused. The number "
        "of drafted tokens counts both.",
        ("draft token", "drafted tokens"),
        ("accepted", "acceptance"),
    ),
    Term(
        "accepted",
        "guesses that the target kept",
        "An accepted token is a guess that became part of the text, since the verification rule allowed it. All "
        "guesses after the first refused one are dropped.",
        (),
        ("acceptance", "corrected", "bonus"),
    ),
    Term(
        "corrected",
        "the target's own token, in place of a guess it refused",
        "When the target refuses a guess, the same pass writes a token of the target's own in its place. That "
        "token is called corrected.",
        ("correction",),
        ("accepted", "bonus"),
    ),
    Term(
        "bonus",
        "the target's own token, after a draft that was accepted whole",
        "When all guesses of a pass are accepted, the same pass yields one more token of the target's own. That "
        "token is called the bonus.",
        ("bonus token",),
        ("accepted", "corrected"),
    ),
    Term(
        "plain",
        "the target's own token, from a pass without a draft",
        "Plain decoding writes one token in each pass, without a draft. With --method plain all of an answer is "
        "decoded in this way. With --method auto it happens wherever a draft would not pay.",
        ("plain decoding",),
        ("baseline", "pass"),
    ),
    # Figures
    Term(
        "acceptance",
        "the share of the guesses that were accepted",
        "Acceptance is the number of accepted tokens divided by the number of drafted tokens. The bars beside the "
        "chat show it by position: how often guess n was accepted where guess n-1 was. High acceptance makes "
        "drafts pay.",
        ("acceptance rate",),
        ("accepted", "drafted", "speedup"),
    ),
    Term(
        "speedup",
        "the answer's speed, divided by the speed of plain decoding",
        "Speedup says how many times as fast as plain decoding an answer was; 2.00 is twice as fast. It is "
        "measured against plain passes of the same answer or session, and shown only where its 95 % interval "
        "excludes 1. docs/figures.md has the definition.",
        (),
        ("baseline", "interval", "probe"),
    ),
    Term(
        "baseline",
        "the measured speed of plain decoding, for comparison",
        "The baseline is the speed of plain decoding on this machine, as plain passes of this answer and of the "
        "last minutes measured it. The line tells how many passes there were and how long ago the last one was.",
        (),
        ("plain", "probe", "speedup"),
    ),
    Term(
        "probe",
        "a plain pass made to measure plain decoding",
        "A probe is a plain pass that --method auto makes to measure the speed of plain decoding. It makes two in "
        "about every 128 passes. Its token is part of the text, so nothing is lost but the chance of a draft.",
        ("probes", "probed"),
        ("baseline", "auto"),
    ),
    Term(
        "interval",
        "the range that holds the true figure in 95 % of cases",
        "A 95 % interval says how far chance can move a measured figure. If the interval of a speedup holds 1, the"
        " measurement does not tell which was faster, and localspec shows no speedup.",
        ("confidence interval", "ci", "ci95"),
        ("speedup",),
    ),
    Term(
        "verdict",
        "one sentence: how fast the answer was, and why it drafted or not",
        "The verdict is one sentence below the figures. It says how fast the answer was beside plain decoding, and"
        " why --method auto drafted or decoded plainly.",
        (),
        ("speedup", "auto"),
    ),
    Term(
        "tok/s",
        "tokens a second, by the clock",
        "Tokens a second is the number of decoded tokens divided by the time of their passes. The time in which "
        "the prompt is read does not count.",
        ("tokens per second", "tokens a second", "rate"),
        ("token", "time-to-first-token"),
    ),
    Term(
        "time to first token",
        "the wait from Enter to the first token",
        "The time to first token, ttft for short, is the wait until an answer begins. Nearly all of it is the "
        "prefill: the target reads the prompt. Drafts do not shorten it.",
        ("ttft",),
        ("prefill",),
    ),
    Term(
        "prefill",
        "the target reads the prompt",
        "Prefill is the evaluation of the prompt before the first token. Text that is still in the KV cache, such "
        "as earlier turns of a chat, is not read again.",
        ("prompt evaluation",),
        ("time-to-first-token", "kv-cache"),
    ),
    # Drafts
    Term(
        "k",
        "the number of tokens to draft, set with -k",
        "k is the most tokens that a draft holds, set with -k. A greater k gains more where guesses are good and "
        "costs more where they are not. --method auto chooses the length for each pass.",
        ("draft length",),
        ("rows", "acceptance"),
    ),
    Term(
        "chain",
        "a draft without branches: one token after another",
        "A chain is a draft without branches. The first refused token ends it.",
        (),
        ("tree", "k"),
    ),
    Term(
        "tree",
        "a draft with branches: several guesses for the same place",
        "A tree is a draft with branches. It holds several guesses for the same place, and one pass checks all of "
        "them. A tree pays where more rows cost little.",
        ("draft tree", "node", "nodes"),
        ("chain", "rows"),
    ),
    Term(
        "verifier",
        "the rule that accepts or refuses drafted tokens",
        "A verifier is the rule that accepts or refuses drafted tokens. Most rules are lossless. localspec methods"
        " lists all, and --verify chooses one.",
        ("verification", "rule"),
        ("lossless", "distribution"),
    ),
    Term(
        "auto",
        "the default method: drafts only as far as it pays",
        "--method auto compares, before each pass, the value of a draft with its cost. It copies from the text, "
        "asks the draft model, or decodes plainly. The loss account limits its losses.",
        (),
        ("loss-account", "probe"),
    ),
    Term(
        "loss account",
        "the limit on the time that drafting may lose",
        "The loss account limits the time that --method auto may lose by drafting. An answer may take 2 % and one "
        "pass longer than plain decoding. In addition, drafts may lose 15 % of the time in which the target read "
        "the prompt.",
        ("account",),
        ("auto",),
    ),
    # Exactness
    Term(
        "distribution",
        "the probabilities of all possible next tokens",
        "A distribution gives each possible next token its probability. The model computes it from the text so "
        "far; temperature and filters shape it. The next token is drawn from it.",
        ("law", "probabilities"),
        ("lossless", "temperature"),
    ),
    Term(
        "lossless",
        "the text keeps the target's distribution",
        "A rule is lossless if its text has exactly the distribution that the target alone would give it. The text"
        " of one seed can still differ from plain decoding's; --reproducible excludes that. Rules that are not "
        "lossless need --approximate.",
        ("exact",),
        ("distribution", "reproducible", "tie"),
    ),
    Term(
        "reproducible",
        "the same text as plain decoding, bit for bit",
        "With --reproducible an answer is the text of plain decoding under the same flag, bit for bit. This holds "
        "on one machine and build, for one seed and the same settings. Passes are narrower then.",
        (),
        ("seed", "tie", "lossless"),
    ),
    Term(
        "seed",
        "the number that fixes all random choices of an answer",
        "A seed fixes all random choices of an answer. With --seed, localspec uses the coupled rule, whose text "
        "does not depend on the method, except at ties.",
        (),
        ("reproducible", "tie"),
    ),
    Term(
        "tie",
        "two tokens so close that rounding decides between them",
        "At a tie two tokens are so close that rounding decides between them. A row in a wide pass is rounded "
        "differently from the row alone. So two runs of one seed can fork at a tie; --reproducible excludes this.",
        ("fork",),
        ("reproducible",),
    ),
    Term(
        "temperature",
        "how much chance there is in the choice of a token",
        "Temperature sets how much chance there is in the choice of a token. At 0 the likeliest token is always "
        "taken. Drafts are accepted more often at low temperatures.",
        ("temp",),
        ("distribution", "seed"),
    ),
    # Memory
    Term(
        "context",
        "the tokens that the model sees: prompt, conversation and answer",
        "The context is the text that the model sees: prompt, earlier turns and the answer so far. --ctx sets its "
        "greatest length in tokens. A long conversation is sent without its oldest turns.",
        ("ctx", "context length"),
        ("token", "kv-cache"),
    ),
    Term(
        "KV cache",
        "the model's memory of the text that it has read",
        "The KV cache holds the keys and values that the model computed for the text so far. It saves reading the "
        "text again for each token. Its size grows with the context.",
        ("kv", "cache"),
        ("context", "prefill"),
    ),
    Term(
        "engine",
        "the process that runs llama.cpp",
        "The engine is a process of its own that runs llama.cpp. If it ends by an error, the chat goes on and can "
        "start it again.",
        ("worker",),
        (),
    ),
)
FIGURES = ("pass", "drafted", "accepted", "corrected", "bonus", "plain", "probe", "verdict")  # explained by F1


def key(name: str) -> str:
    """Return a name as it is compared: lower case, with hyphens."""
    return "-".join(name.lower().replace("-", " ").replace("_", " ").split())


TERMS = {term.key: term for term in _TERMS}
_ALIASES = {key(alias): term for term in _TERMS for alias in term.aliases}


def find(name: str) -> Term | None:
    """Return the term of that name or alias, None if there is none."""
    return TERMS.get(key(name)) or _ALIASES.get(key(name))


def names() -> list[str]:
    """Return every name and alias as it is typed."""
    return [*TERMS, *_ALIASES]
