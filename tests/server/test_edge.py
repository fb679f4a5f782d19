"""An edge and its verifier, both real: the text is the local one, whatever breaks on the way."""

import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.backends.tokenizer import sample_tokens
from localspec.cli.settings import drafting_for
from localspec.engine.draft import Draft, Verdict
from localspec.engine.events import Committed, Event, Finished, Loading, Returning
from localspec.engine.judge import Mark
from localspec.engine.protocols import Rows
from localspec.errors import IncompatibleError, LocalspecError, NetworkError
from localspec.remote import channel
from localspec.remote.judge import RemoteJudge
from localspec.session import remote_target
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from tests.cli.harness import REAL, ROOT, assert_one_line, environment, run_engine, wait_for
from tests.integration.pair import DRAFT, TARGET, load_pair
from tests.models.hollow import Hollow, write
from tests.server.serving import Server, chat, serving

SAME = ("--kv", "f32", "--flash-attn", "off", "-t", "1")  # rows of several passes are those of one
LOCAL = LoadSettings(str(TARGET), kv_type="f32", flash_attn="off", threads=1)
SEEDED = Sampling(seed=11)
COPIES = Speculation(method="suffix", verify="coupled")
CHAIN = Speculation(method="draft-model", k=4, verify="coupled")
PROMPT = "Once upon a time there was a king, and the king had a daughter, and the daughter"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*SAME) as server:
        yield server


@pytest.fixture(scope="module")
def local() -> Iterator[LoadedPair]:
    pair, _ = load_pair(replace(LOCAL, draft=str(DRAFT)))
    yield pair
    pair.close()


def settings(server: Server, *, is_drafting: bool = True) -> LoadSettings:
    load = LoadSettings("", verifier=server.url.replace("http", "ws", 1), threads=1)
    return drafting_for(load, DRAFT if is_drafting else None)


@pytest.fixture(scope="module")
def edge(server: Server) -> Iterator[LoadedPair]:
    pair, _ = load_pair(settings(server))
    yield pair
    pair.close()


def asked(speculation: Speculation, **more: Any) -> Request:
    return replace(Request(prompt=PROMPT, max_tokens=48, speculation=speculation, sampling=SEEDED), **more)


def said(pair: LoadedPair, request: Request, during: Callable[[int], None] = lambda n: None) -> str:
    """Return the text of an answer; `during` is called after each pass."""
    found = ""
    for event in pair.answer(request):
        if isinstance(event, Committed):
            found += event.text
            during(event.index)
        elif isinstance(event, Finished):
            assert event.reason != "interrupted"
            found += event.tail
    return found


@pytest.mark.parametrize(
    "request_",
    [
        asked(COPIES),
        asked(CHAIN),
        asked(Speculation(method="draft-model", tree="static:3,2", verify="coupled")),
        asked(Speculation()),
        asked(CHAIN, sampling=Sampling(temperature=0.0, seed=1)),
        asked(CHAIN, sampling=replace(SEEDED, repeat_penalty=1.2, dry_multiplier=0.8, xtc_probability=0.5)),
        asked(CHAIN, sampling=replace(SEEDED, logit_bias=((13, -float("inf")),))),
        asked(CHAIN, stop=(" the ",)),
        asked(CHAIN, regex="[a-z ]{20,40}"),
        asked(CHAIN, prompt="a"),
    ],
    ids=["copies", "chain", "tree", "auto", "greedy", "penalties", "bias", "stop", "regex", "short"],
)
def test_the_text_is_the_local_one(local: LoadedPair, edge: LoadedPair, request_: Request) -> None:
    assert said(edge, request_) == said(local, request_)


def test_without_any_model_at_the_edge(server: Server, local: LoadedPair) -> None:
    pair, _ = load_pair(settings(server, is_drafting=False))
    try:
        assert said(pair, asked(COPIES)) == said(local, asked(COPIES))
        assert pair.target.facts().bytes == TARGET.stat().st_size
    finally:
        pair.close()


@pytest.mark.parametrize("verify", ["match", "token", "block", "traversal", "spectr"])
def test_every_exact_rule_answers(edge: LoadedPair, verify: str) -> None:
    """That each keeps the distribution is enumerated in tests/remote; here it crosses a real line."""
    tree = "static:2,2" if verify in ("traversal", "spectr") else "chain"
    speculation = Speculation(method="draft-model", tree=tree, k=None if tree != "chain" else 4, verify=verify)
    passes = [each for each in edge.answer(asked(speculation)) if isinstance(each, Committed)]
    assert sum(len(each.out) for each in passes) == 48
    assert sum(each.n_accepted for each in passes) > 0


def test_each_pass_tells_its_way(edge: LoadedPair) -> None:
    """Bytes up and down, the time until the answer came, and that of it in the verifier."""
    passes = [each for each in edge.answer(asked(CHAIN)) if isinstance(each, Committed)]
    first, *others = [each.way for each in passes if each.way is not None]
    assert len(others) == len(passes) - 1
    assert first.up > max(way.up for way in others)  # the prompt
    assert all(20 < way.up < 120 and 10 < way.down < 60 for way in others)
    assert all(0 < way.judge_ms <= way.ms for way in others)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (asked(Speculation(method="lookahead")), "--method lookahead"),
        (asked(Speculation(method="early-exit")), "--method early-exit"),
        (asked(Speculation(method="draft-model", verify="typical", approximate=True)), "--verify typical"),
        (asked(CHAIN, logprobs=2), "--logprobs"),
    ],
)
def test_what_reads_rows_is_refused_in_one_line(edge: LoadedPair, request_: Request, told: str) -> None:
    with pytest.raises(LocalspecError) as raised:
        list(edge.answer(request_))
    assert told in raised.value.message


def test_passes_are_timed_on_a_running_text(edge: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixture reads the experts of its rows' tokens. A text that is over is begun anew outside the time."""
    target = edge.remote
    assert target is not None
    asked: list[tuple[int, tuple[int, ...]]] = []
    verdict = RemoteJudge.verdict

    def noted(own: RemoteJudge, draft: Draft, tokens: Sequence[int], mark: Mark) -> tuple[Verdict, Rows]:
        asked.append((len(tokens), tuple(draft.tokens[1:].tolist())))
        return verdict(own, draft, tokens, mark)

    monkeypatch.setattr(RemoteJudge, "verdict", noted)
    monkeypatch.setattr(remote_target, "LONGEST_TIMED", 0)  # each text is over at once
    monkeypatch.setattr(remote_target.time, "perf_counter", lambda: len(asked))  # the time is in rounds
    target.truncate(0)
    assert [target.time_rows(8) for _ in range(3)] == [1, 1, 1]
    drafts = [(at, draft) for at, draft in asked if draft]
    assert [draft for _, draft in drafts] == [tuple(sample_tokens(target.model, at, 7).tolist()) for at, _ in drafts]
    target.truncate(0)


def test_a_killed_engine_is_told_again_behind_what_passes_are_timed(server: Server, edge: LoadedPair) -> None:
    """An answer that began then ended with "the verifier lost the text"."""
    target = edge.remote
    assert target is not None
    target.truncate(0)
    assert target.time_rows(4) > 0
    os.kill(server.engine, signal.SIGKILL)
    assert target.time_rows(4) > 0
    target.truncate(0)


def test_a_killed_engine_changes_nothing(server: Server, edge: LoadedPair, local: LoadedPair) -> None:
    """It is loaded again, has forgotten the text, is told it again, and draws the same."""
    killed: list[int] = []

    def kill(index: int) -> None:
        if index in (3, 9):
            killed.append(server.engine)
            os.kill(killed[-1], signal.SIGKILL)

    assert said(edge, asked(CHAIN), kill) == said(local, asked(CHAIN))
    assert len(set(killed)) == 2


def test_a_broken_line_changes_nothing(edge: LoadedPair, local: LoadedPair) -> None:
    """Cut between two rounds and within one: the session is taken up, and nothing stands twice."""
    assert edge.remote is not None
    connection, before = edge.remote.channel.connection, edge.remote.channel.n_broken

    def cut(index: int) -> None:
        if index in (2, 5, 6):
            connection._socket.socket.shutdown(socket.SHUT_RDWR)

    assert said(edge, asked(CHAIN), cut) == said(local, asked(CHAIN))
    assert edge.remote.channel.n_broken - before == 3


def test_edges_and_chats_take_turns(server: Server, edge: LoadedPair, local: LoadedPair) -> None:
    """Two edges step by step, with a chat between them: each text is the one it would be alone."""
    other, _ = load_pair(settings(server, is_drafting=False))
    first, second = asked(CHAIN), asked(COPIES, prompt="The ship had been three days at sea when the ship")
    expected = [said(local, first), said(local, second)]
    texts = ["", ""]
    answers = [edge.answer(first), other.answer(second)]
    try:
        for n in range(10_000):
            open_ = [i for i, each in enumerate(answers) if each is not None]
            if not open_:
                break
            i = open_[n % len(open_)]
            event = next(answers[i], None)
            if event is None:
                answers[i] = None  # type: ignore[call-overload]
            elif isinstance(event, Committed):
                texts[i] += event.text
                if event.index == 4:
                    server.post("/v1/chat/completions", max_tokens=3, **chat())
            elif isinstance(event, Finished):
                texts[i] += event.tail
    finally:
        other.close()
    assert texts == expected


def test_a_stop_while_the_verifier_is_silent(server: Server) -> None:
    """A person is told what is waited for, and can stop; the edge is fit for another answer then."""
    stopped = threading.Event()
    told: list[Event] = []

    def tell(event: Event) -> None:
        told.append(event)
        if isinstance(event, Loading) and event.what == channel.WAITS:
            stopped.set()

    run = Returning(load(settings(server), stopped.is_set, tell=tell))
    list(run)
    pair = run.result
    list(pair.answer(replace(asked(CHAIN), max_tokens=2)))  # what it measures at first is done
    engine = server.engine
    finished: list[Finished] = []
    try:
        for event in pair.answer(asked(CHAIN)):
            if isinstance(event, Committed) and event.index == 2:
                os.kill(engine, signal.SIGSTOP)
            if isinstance(event, Finished):
                finished.append(event)
    finally:
        os.kill(engine, signal.SIGCONT)
    assert [each.reason for each in finished] == ["interrupted"]
    stopped.clear()
    assert said(pair, asked(CHAIN))
    pair.close()


def test_a_killed_edge_leaves_nothing_behind(server: Server) -> None:
    """Its round ends, and its place is free for others."""
    url = server.url.replace("http", "ws", 1)
    command = [*REAL, "run", "--verifier", url, "-m", str(DRAFT), "-n", "900", "--no-save", "--raw", PROMPT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment(), cwd=ROOT)
    assert process.stdout is not None
    assert process.stdout.read(20)
    process.kill()
    process.communicate()
    wait_for(lambda: server.queue() == (False, 0))
    assert server.post("/v1/chat/completions", max_tokens=2, **chat())["usage"]["completion_tokens"] == 2


def test_another_model_by_now(server: Server, tmp_path: Path) -> None:
    """A verifier that was started anew with another model is told apart before anything is drafted."""
    held = settings(server)
    other = tmp_path / f"{'0' * 64}.gguf"
    other.write_bytes(Path(held.target).read_bytes())
    with pytest.raises(IncompatibleError, match="another model by now"):
        load_pair(replace(held, target=str(other)))


def test_nobody_there(server: Server) -> None:
    """One line, and what to type."""
    with pytest.raises(NetworkError) as raised:
        load_pair(replace(settings(server), verifier="ws://127.0.0.1:1"))
    assert "localspec serve" in raised.value.hint


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--verifier", "ws://127.0.0.1:1"], 4, "cannot be reached"),
        (["--verifier", "wss://URL"], 4, "speaks no TLS"),
        (["--verifier", "ftp://tower"], 2, "--verifier"),
        (["--verifier", "URL", "-m", "storyteller+none"], 2, "names no draft alone"),
        (["--verifier", "URL", "-m", "none.gguf"], 3, "none.gguf"),
        (["--verifier", "URL", "--reproducible"], 2, "is the verifier's to decide"),
        (["--verifier", "URL", "--logprobs", "2", "--json"], 6, "--logprobs"),
    ],
)
def test_what_goes_wrong_is_one_line_with_its_exit_code(
    server: Server, arguments: list[str], code: int, told: str
) -> None:
    given = [each.replace("URL", server.url.partition("://")[2]) for each in arguments]
    ended = run_engine("run", "--no-save", "-n", "4", *given, "Once")
    lines = ended.stderr.decode().splitlines()
    assert (ended.returncode, len(lines)) == (code, 1)
    assert told in lines[0]


def test_a_draft_of_another_vocabulary_is_compared_with_the_verifier_by_name(server: Server, tmp_path: Path) -> None:
    """The file that was fetched has a digest for a name, which says nothing to people."""
    foreign = write(tmp_path / "foreign.gguf", Hollow(1, 64, 1, 1, 64, 1024, "F16", word="z"))
    where = server.url.partition("://")[2]
    ended = run_engine("run", "--no-save", "--verifier", f"ws://{where}", "-m", str(foreign), "Once")
    assert_one_line(ended, 6, f"foreign.gguf does not fit the target at {where}: they share 256 of the target's")


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_what_measures_rows_takes_no_verifier(command: str) -> None:
    ended = run_engine(command, str(DRAFT), "--verifier", "ws://127.0.0.1:1")
    assert ended.returncode == 2
    assert "stay with a verifier" in ended.stderr.decode()


def test_a_verifier_that_is_set_for_good_is_for_other_commands() -> None:
    ended = run_engine("bench", "none.gguf", env={"LOCALSPEC_VERIFIER": "ws://127.0.0.1:1"})
    assert "none.gguf" in ended.stderr.decode()


def test_a_race_of_edge_alone_verifier_alone_and_both(server: Server) -> None:
    """Both have the verifier's text; the draft alone is a model of its own."""
    url = server.url.replace("http", "ws", 1)
    ended = run_engine("race", str(DRAFT), "--verifier", url, "--seed", "3", "-n", "12", "Once upon a time")
    assert ended.returncode == 0
    told = ended.stdout.decode()
    assert "identical output, 12 tokens" in told
    names = [line[:14].strip() for line in told.splitlines()]
    head = names.index("", names.index("") + 1)
    assert names[head + 1 : head + 4] == ["edge alone", "verifier alone", "both"]
    assert re.search(r"bytes a token, \d+ % of its cache; \d+ MiB there, \d+ MiB here", told)


def test_a_race_without_a_model_at_the_edge(server: Server) -> None:
    """Nobody is alone there. Several rounds have their percentiles, and programs all of it."""
    url = server.url.replace("http", "ws", 1)
    ended = run_engine("race", "none", "--verifier", url, "--repeat", "2", "--seed", "3", "-n", "12", "--json", "Once")
    found = json.loads(ended.stdout)
    assert list(found["sides"]) == ["verifier alone", "both"]
    assert [one["edge_alone"] for one in found["rounds"]] == [None, None]
    assert found["rounds"][0]["speculative"]["peak_bytes"] > 10_000_000  # of the edge
    assert found["rounds"][0]["speculative"]["edge"]["peak_bytes"] > 10_000_000  # of the verifier
    for told in found["sides"].values():
        assert told["n"] == 2
        assert 0 < told["ttft_ms"]["p50"] <= told["ttft_ms"]["p95"] < told["total_ms"]["p95"]


def test_figures_of_the_way(server: Server) -> None:
    """`--json` has them, and the line below an answer."""
    url = server.url.replace("http", "ws", 1)
    more = ("--method", "draft-model", "-k", "4", "--seed", "3", "-n", "32", "--no-save", "--raw", PROMPT)
    ended = run_engine("run", "--verifier", url, "-m", str(DRAFT), "--json", *more)
    found = json.loads(ended.stdout)["edge"]
    assert found["rounds"] > 3
    assert found["bytes_per_token"] == pytest.approx((found["up_bytes"] + found["down_bytes"]) / 31, rel=0.1)
    assert 0 < found["calls_per_token"] < 1
    assert 0 <= found["hard_ratio"] <= 1
    assert found["text_bytes"] > 20
    assert found["peak_bytes"] > 10_000_000
    assert 0 < found["cache_share"] < 0.2
    below = run_engine("run", "--verifier", url, "--stats", *more[4:]).stderr.decode()
    assert re.search(r"verifier \d+ ms away, \d+ bytes a token, \d+ % of its cache; \d+ MiB there", below)
