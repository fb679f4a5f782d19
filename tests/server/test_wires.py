"""What each API says, field by field: whole, as a stream, and of a model. `--snapshot-update` writes it anew."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from localspec import __version__
from localspec.engine.events import Event, Finished, Logprob, Prefilled
from localspec.server import llama_server, ollama, openai, own
from localspec.server.anthropic import Messages
from localspec.server.fields import OfferedPair
from localspec.server.llama_server import LlamaServer
from localspec.server.ollama import Ollama
from localspec.server.openai import OpenAI
from localspec.server.reply import Reply
from localspec.server.responses import Responses
from localspec.settings.request import LoadSettings, Request
from tests.cli.fakes import committed, facts
from tests.server.test_fields import SERVED
from tests.server.test_openai_replies import EVENTS, STARTED, told
from tests.server.test_tools import HERMES

ONCE = tuple(b"Once")
LIKELY = Logprob(100, ONCE, -0.5, (Logprob(100, ONCE, -0.5), Logprob(7, (0xC3,), None)))
CALLING: list[Event] = [
    STARTED,
    Prefilled(16, 6, 10.0),
    replace(committed(0, "Well", k=0), logprobs=(LIKELY, Logprob(2, (), -1.0))),
    committed(1, " so. ", k=0),
    committed(2, HERMES, k=0),
    Finished("length", "", 100.0, 20.0, 1 << 20),
]
REPLIES: dict[str, Callable[[bool], Reply]] = {
    "chat": lambda calls: OpenAI("m", is_chat=True, has_usage=True, has_prediction=True, tools=tools(calls)),
    "completion": lambda calls: OpenAI("m", is_chat=False, has_usage=False),
    "responses": lambda calls: Responses("m", {"temperature": 0.5}, tools(calls)),
    "messages": lambda calls: Messages("m", tools(calls)),
    "ollama chat": lambda calls: Ollama("m", is_chat=True, tools=tools(calls)),
    "ollama generate": lambda calls: Ollama("m", is_chat=False),
    "llama-server": lambda calls: LlamaServer("m", Request(prompt="Tell", is_after_sampler=True)),
    "own": lambda calls: own.Events(LoadSettings("t.gguf")),
}


def tools(calls: bool) -> dict[str, dict[str, Any]]:
    return {"weather": {}} if calls else {}


def lines(*wires: Any) -> str:
    """Return what a client reads, an object a line, with the same time for all."""
    told = "\n".join(json.dumps(wire, ensure_ascii=False) for wire in wires)
    return re.sub(r'("created_at": ")[^"]*', r"\1now", told)


@pytest.fixture(autouse=True)
def _same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time, chance or version is in what is compared."""
    assert __version__
    clock = SimpleNamespace(time=lambda: 1_700_000_000.5)
    for module in ("openai", "responses", "call_pieces", "ollama", "own", "anthropic"):
        for name, other in (("secrets", SimpleNamespace(token_hex=lambda n: f"{n} bytes")), ("time", clock),
                            ("__version__", "0")):  # fmt: skip
            monkeypatch.setattr(f"localspec.server.{module}.{name}", other, raising=False)


def ended(*events: Event, reason: str = "stop", **more: Any) -> list[Event]:
    return [STARTED, Prefilled(16, 6, 10.0), *events, Finished(reason, "", 100.0, 20.0, 1 << 20, **more)]


def thought(i: int, text: str, answer: str = "", k: int = 0) -> Event:
    return replace(committed(i, text + answer, k=k), text=answer, reasoning=text)


ONLY = (
    Logprob(7, ONCE, -0.5, (Logprob(7, ONCE, -0.5), Logprob(2, (), -1.5))),
    Logprob(8, tuple(b" upon"), None, ()),
    Logprob(2, (), -0.1, ()),
)
PARTS = tuple(Logprob(i, tuple(raw), -1.0) for i, raw in enumerate((b"a", b"\xe9\x80", b"\x82", b"\xe9", b"b")))
HAPPENED: dict[str, list[Event]] = {
    "text": EVENTS,
    "call": CALLING,
    "a call that cannot be read": ended(committed(0, "<tool_call>{weather}</tool_call>", k=0)),
    "nothing drafted": ended(committed(0, "Once", k=0), reason="length"),
    "a full context": ended(committed(0, "Once", k=4), reason="context"),
    "a stop word": ended(committed(0, "Once", k=0), stopping_word="END"),
    "no text": ended(committed(0, "", k=0)),
    "log-probabilities": ended(
        replace(committed(0, "Once upon", k=0), logprobs=ONLY[:2]), replace(committed(1, "", k=0), logprobs=ONLY[2:])
    ),
    "parts of a character": ended(replace(committed(0, "", k=0), logprobs=(replace(PARTS[0], top=PARTS), *PARTS[1:]))),
    "a thought and its answer in a pass": ended(
        thought(0, "Hmm"), thought(1, "so", " Once", k=1), committed(2, " upon", k=0)
    ),
    "a thought without an end": ended(thought(0, "Hmm"), reason="length", reasoning="m"),
}


@pytest.mark.parametrize("happened", HAPPENED)
@pytest.mark.parametrize("kind", REPLIES)
def test_an_answer(kind: str, happened: str, snapshot: Any) -> None:
    events, calls = HAPPENED[happened], "call" in happened
    reply, stats = REPLIES[kind](calls), told(events)
    wires = [*reply.opening(), *(wire for event in events for wire in reply.pieces(event))]
    wires += [*reply.following(stats), *reply.closing(stats)]
    if kind != "own":
        wires.append(REPLIES[kind](calls).whole(stats))
    assert lines(*wires) == snapshot
    if happened in ("text", "call"):
        waiting = re.sub(rb'("created_at":")[^"]*', rb"\1now", reply.waiting())
        assert [reply.frame({"type": "x"}), reply.frame({"type": "y"}), waiting, reply.end] == snapshot


# Two calls in two forms with text around, in pieces as a model writes them.
WRITTEN = [
    "I look. <tool", '_call>\n{"name": "we', 'ather", "argum', 'ents": {"ci', 'ty": "O', 'slo"', "}}\n</tool_",
    "call>\nAnd ",
    "<tool_call>\n<function=we", "ather>\n<para", "meter=city>\nNew", " \"York\"\n</param", "eter>\n<parameter=days>\n",
    "[1,\n2]\n</parameter>\n</func", "tion>\n</tool_call>", "\nDone.",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["chat", "responses", "messages", "ollama chat"])
def test_calls_while_they_are_written(kind: str, snapshot: Any) -> None:
    """The name comes first, then the arguments piece by piece; what is around is text; the whole has the same."""
    events = [STARTED, *(committed(i, text, k=0) for i, text in enumerate(WRITTEN)), EVENTS[-1]]
    weather = {"weather": {"properties": {"city": {"type": "string"}, "days": {"type": "array"}}}}
    reply, other = (
        {
            "chat": lambda: OpenAI("m", is_chat=True, has_usage=False, tools=weather),
            "responses": lambda: Responses("m", {}, weather),
            "messages": lambda: Messages("m", weather),
            "ollama chat": lambda: Ollama("m", is_chat=True, tools=weather),
        }[kind]()
        for _ in range(2)
    )
    wires = [*(wire for event in events for wire in reply.pieces(event)), *reply.closing(told(events))]
    assert lines(*map(bare, wires), bare(other.whole(told(events)))) == snapshot


def bare(wire: Any) -> Any:
    left = ("created", "created_at", "model", "object", "timings", "speculation", "system_fingerprint", "usage")
    if isinstance(wire, list):
        return list(map(bare, wire))
    return {k: bare(v) for k, v in wire.items() if k not in left} if isinstance(wire, dict) else wire


def test_a_model(snapshot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that was loaded with a draft, of one whose file is not there, and of a large one."""
    assert SERVED.loaded is not None
    large = replace(facts("l.gguf"), n_params=7_600_000_000)
    file = SimpleNamespace(architecture="llama", n_params=large.n_params, n_ctx_train=1024, n_layer=8, quant="Q8_0")
    monkeypatch.setattr(ollama, "file_of", lambda listed: None if listed.loaded is None else file)
    pair = replace(SERVED, loaded=replace(SERVED.loaded, target=large, draft=facts("d.gguf")))
    new = OfferedPair("tiny", ("other",), 1_700_000_000, 7, "Q4_0", None)
    found = {
        "models": openai.models([SERVED, pair, new]),
        "tags": ollama.tags([pair, new]),
        "ps": ollama.ps([pair]),
        "show": ollama.show({"name": "storyteller", "verbose": True}, pair),
        "show of a new one": ollama.show({}, replace(SERVED, loaded=None)),
        "props": llama_server.props(pair),
        "props without a limit": llama_server.props(replace(pair, request=Request())),
        "pair": own.pair(replace(pair, settings=replace(pair.settings, draft="d.gguf")))["has_draft"],
        "loads": [read({}, SERVED) for read in (ollama.chat, ollama.generate)],
    }
    assert lines(*found.items()) == snapshot
