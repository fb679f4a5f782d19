"""One answer at a time: clients that come at once, that leave, and an engine that dies."""

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from localspec.cli.serving import called_as_typed
from tests.cli.harness import is_running, needs_pair, wait_for
from tests.server.serving import LONG, Server, chat, serving

pytestmark = needs_pair
CHAT = "/v1/chat/completions"
ENDLESS = {"max_tokens": 100_000, "logit_bias": {"2": -1e6, "1": -1e6, "0": -1e6}}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Its context is large, so that an answer lasts until somebody stops it."""
    with serving("--ctx", "200000", "--queue", "4", "--method", "plain") as server:
        yield server


@pytest.fixture(autouse=True)
def at_rest(server: Server) -> Iterator[None]:
    yield
    wait_for(lambda: server.queue() == (False, 0))


def test_a_client_that_leaves_stops_its_answer(server: Server) -> None:
    for is_streamed in (True, False):
        opened = server.open(CHAT, **chat(stream=is_streamed, **ENDLESS))
        server.wait_until_waiting(0)
        if is_streamed:
            assert b"200 OK" in opened.recv(1000)
        opened.close()
        wait_for(lambda: server.queue() == (False, 0))
        assert server.post(CHAT, **chat(max_tokens=2))["usage"]["completion_tokens"] == 2


def test_a_client_that_leaves_takes_its_place_along(server: Server) -> None:
    running = server.open(CHAT, **chat(stream=True, **ENDLESS))
    server.wait_until_waiting(0)
    waiting = [server.open(CHAT, **chat(stream=i % 2 == 0, max_tokens=1)) for i in range(4)]
    server.wait_until_waiting(4)
    for opened in waiting:
        opened.close()
    server.wait_until_waiting(0)
    running.close()
    assert server.post(CHAT, **chat(max_tokens=1))["choices"], "the next client is answered"


def test_a_full_queue(server: Server) -> None:
    """Who comes too late is told when to come again; those who wait are answered in turn."""
    running = server.open(CHAT, **chat(stream=True, **ENDLESS))
    server.wait_until_waiting(0)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(server.post, CHAT, **chat(max_tokens=3)) for _ in range(4)]
        server.wait_until_waiting(4)
        status, told, headers = server.ask("POST", CHAT, chat())
        assert (status, told["error"]["code"]) == (429, "queue_full")
        assert 1 <= int(headers["retry-after"]) <= 60
        running.close()
        assert [each.result()["usage"]["completion_tokens"] for each in waiting] == [3] * 4


def test_the_engine_dies_in_an_answer(server: Server) -> None:
    """Its client is told, within the stream or by a status; the next one is answered."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": LONG}]
        stream = client.chat.completions.create(
            model="storyteller", messages=messages, stream=True, max_tokens=100_000, logit_bias={"2": -1e6}
        )
        next(iter(stream))
        os.kill(server.engine, signal.SIGKILL)
        with pytest.raises(openai.APIError, match="SIGKILL"):
            list(stream)
    assert server.post(CHAT, **chat(max_tokens=2))["usage"]["completion_tokens"] == 2
    done: list[tuple[int, object]] = []
    thread = threading.Thread(target=lambda: done.append(server.ask("POST", CHAT, chat(**ENDLESS))[:2]))
    thread.start()
    server.wait_until_waiting(0)
    os.kill(server.engine, signal.SIGKILL)
    thread.join()
    ((status, told),) = done
    assert status == 503
    assert "SIGKILL" in str(told)
    assert server.post(CHAT, **chat(max_tokens=2))["usage"]["completion_tokens"] == 2


def test_the_engine_dies_with_nothing_to_do(server: Server) -> None:
    was = server.engine
    os.kill(was, signal.SIGKILL)
    threads = Path(f"/proc/{was}/task")
    wait_for(lambda: not is_running(was) and (not threads.is_dir() or len(list(threads.iterdir())) <= 1))
    answer = server.post(CHAT, **chat(max_tokens=2))
    assert answer["usage"]["completion_tokens"] == 2
    assert "starts again" in str(answer["speculation"]["warnings"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda one: one.name)
def test_a_signal_lets_the_answer_end(number: signal.Signals) -> None:
    """The answer at hand is complete, who waits is refused, and nothing is left behind."""
    with serving("--ctx", "4096") as server, ThreadPoolExecutor(2) as pool:
        engine = server.engine
        running = pool.submit(server.post, CHAT, **chat(max_tokens=600, logit_bias={"2": -1e6}))
        server.wait_until_waiting(0)
        waiting = pool.submit(server.ask, "POST", CHAT, chat(max_tokens=1))
        server.wait_until_waiting(1)
        assert server.stop(number) == 128 + number
        assert running.result()["usage"]["completion_tokens"] == 600
        assert waiting.result()[0] == 503
        assert not is_running(engine)
        said = server.close()
        assert "Traceback" not in said
        assert "has 30 s to end; Ctrl-C again leaves at once" in said


def test_a_client_may_name_the_model_as_it_was_typed() -> None:
    assert called_as_typed(("gpt",), "smollm", None) == called_as_typed(("gpt",), None, "smollm") == ("gpt", "smollm")
    assert called_as_typed(("gpt",), "/models/smollm.gguf", None) == called_as_typed(("gpt",), None, None) == ("gpt",)


def test_a_second_ctrl_c_leaves_at_once() -> None:
    with serving("--ctx", "200000") as server:
        engine = server.engine
        opened = server.open(CHAT, **chat(stream=True, **ENDLESS))
        opened.recv(1000)
        server.process.send_signal(signal.SIGINT)
        wait_for(lambda: _refuses(server))
        assert server.stop(signal.SIGINT) == 130
        wait_for(lambda: not is_running(engine))


def _refuses(server: Server) -> bool:
    try:
        server.ask("GET", "/health")
    except OSError:
        return True
    return False


def test_a_killed_server_takes_its_engine_along() -> None:
    with serving() as server:
        engine = server.engine
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        wait_for(lambda: not is_running(engine))
        assert not is_running(engine)


def test_lines_that_nobody_reads_hold_up_no_answer() -> None:
    """A line about each answer would fill the smallest pipe with 30 of them."""
    with serving() as server:
        assert server.process.stderr is not None
        fcntl.fcntl(server.process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(60):
            assert server.post(CHAT, **chat(max_tokens=2))["usage"]["completion_tokens"] == 2


def test_a_question_of_a_text_waits_for_no_answer(server: Server) -> None:
    running = server.open(CHAT, **chat(stream=True, **ENDLESS))
    server.wait_until_waiting(0)
    assert running.recv(1000)
    assert server.post("/tokenize", content="Once upon a time")["tokens"]
    assert server.post("/apply-template", messages=chat()["messages"])["prompt"]
    assert server.queue()[0], "the answer is being written still"
    running.close()


def test_two_answers_at_once() -> None:
    """One that came later ends while the first is written, and a third waits for its turn."""
    with serving("--ctx", "20000", "--method", "plain", "--parallel", "2") as both:
        alone = both.post(CHAT, **chat(max_tokens=5, temperature=0))["choices"][0]["message"]
        running = both.open(CHAT, **chat(stream=True, **ENDLESS))
        assert running.recv(1000)
        for _ in range(2):
            beside = both.post(CHAT, **chat(max_tokens=5, temperature=0))
            assert beside["choices"][0]["message"] == alone
        assert both.queue()[0], "the first answer is being written still"
        running.close()
        wait_for(lambda: both.queue() == (False, 0))


def test_four_answers_at_once_where_nobody_says_how_many() -> None:
    with serving("--ctx", "20000", "--method", "plain", is_usual=True) as usual:
        running = [usual.open(CHAT, **chat(f"{n} kings went out", stream=True, **ENDLESS)) for n in range(4)]
        assert all(each.recv(1000) for each in running)
        waiting = usual.open(CHAT, **chat(max_tokens=5))
        usual.wait_until_waiting(1)
        running[2].close()
        assert waiting.recv(1000)
        assert usual.queue() == (True, 0)
        for each in running:
            each.close()
