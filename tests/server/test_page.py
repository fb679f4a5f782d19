"""The page: who may see it, what it holds, and that no text of a model does anything in a browser."""

import re
import shutil
from urllib.parse import urlsplit

import pytest

from localspec.server.guard import Rules
from localspec.server.own import LAST, MOST_SPANS, Board, page
from localspec.server.refusal import Refusal
from localspec.ui.stats import Stats
from tests.cli.fakes import committed
from tests.cli.harness import needs_pair
from tests.server.serving import LONG, Server, chat
from tests.server.test_openai_replies import EVENTS

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = "<img src=x onerror=document.title='bad'><script>document.title='bad'</script>"
CHAT = "/v1/chat/completions"


def test_the_file_needs_nothing_from_outside() -> None:
    """And its policy lets nothing else in: no markup is made of text, and no address is named."""
    content, headers = page()
    text = content.decode()
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert not re.search(r"unsafe|\*|https?:", policy)
    assert policy.count("'sha256-") == 2
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?://|\son\w+=", text)
    assert len(re.findall("<script", text)) == len(re.findall("<style", text)) == 1


def test_the_board_shows_the_running_answer_and_the_last_ones() -> None:
    board = Board()
    assert board.summary() == {"running": None, "last": []}
    for _ in range(LAST + 2):
        stats = Stats()
        board.begin(stats)
        for event in EVENTS:
            stats.observe(event)
            board.observe(stats, event)
        running = board.summary()["running"]
        board.end(stats)
    assert "".join(span["text"] for span in running["spans"]) == "Once upon a time"
    assert {span["source"] for span in running["spans"]} >= {"accepted", "corrected"}
    assert (running["drafted"], running["accepted"], running["method"]) == (4, 2, "draft-model")
    assert board.summary()["running"] is None
    assert len(board.summary()["last"]) == LAST


def test_a_long_answer_is_shown_by_its_end() -> None:
    board, stats = Board(), Stats()
    board.begin(stats)
    for index in range(MOST_SPANS + 5):
        event = committed(index, f" {index}", k=0)
        stats.observe(event)
        board.observe(stats, event)
    spans = board.summary()["running"]["spans"]
    assert len(spans) == MOST_SPANS
    assert spans[-1]["text"] == f" {MOST_SPANS + 4}"


def test_what_others_are_answered_needs_a_key() -> None:
    """That of the page, or the server's own where it has one."""
    rules, keyed = Rules(page_key="page"), Rules(key="s3cret", page_key="page")

    def status(asked: Rules, key: str, path: str = "/status") -> int:
        try:
            asked.judge(path, {"host": "localhost", "authorization": f"Bearer {key}"})
        except Refusal as refusal:
            return refusal.status
        return 200

    assert [status(rules, key) for key in ("", "None", "page")] == [401, 401, 200]
    assert [status(keyed, key) for key in ("", "page", "s3cret")] == [401, 200, 200]
    assert status(keyed, "page", CHAT) == 401, "it opens nothing else"
    assert Rules().page_key != Rules().page_key


@needs_pair
def test_the_front_is_for_browsers_and_for_clients_of_ollama(server: Server) -> None:
    status, told, headers = server.ask("GET", "/", headers={"Accept": "text/html,*/*"})
    assert (status, headers["x-content-type-options"]) == (200, "nosniff")
    assert headers["content-type"].startswith("text/html")
    assert told == page()[0]
    assert server.ask("GET", "/", headers={"Accept": "*/*"})[1]["status"] == "ok"


@needs_pair
def test_the_status(server: Server) -> None:
    assert server.ask("GET", "/status")[0] == 401
    text = server.post(CHAT, **chat(max_tokens=8))["choices"][0]["message"]["content"]
    key = {"Authorization": f"Bearer {urlsplit(server.told['page']).fragment}"}
    status, told, _ = server.ask("GET", "/status", headers=key)
    assert (status, told["model"], told["running"]) == (200, "storyteller", None)
    assert told["draft"] == "llama, 1M"
    assert "".join(span["text"] for span in told["last"][0]["spans"]) == text
    assert LONG not in str(told), "what people ask is not shown"


@needs_pair
@pytest.mark.skipif(BROWSER is None, reason="no Chromium")
def test_in_a_browser(server: Server) -> None:
    """A hostile answer is text, the tokens have their colours, and a wrong key shows nothing."""
    playwright = pytest.importorskip("playwright.sync_api")
    server.post(CHAT, **chat(grammar=f'root ::= "{HOSTILE}"'))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        try:
            opened, complaints = browser.new_page(), []
            opened.on("console", lambda message: complaints.append(message.text))
            opened.goto(server.told["page"])
            opened.get_by_text("<script>", exact=False).first.wait_for()
            shown = opened.locator("#last pre").first
            assert shown.inner_text() == HOSTILE
            assert opened.title() == "localspec"
            assert opened.locator("img, #last script").count() == 0
            assert shown.locator("span.forced").count() > 0
            assert opened.locator("#pair").inner_text().startswith("storyteller")
            assert complaints == []
            other = browser.new_page()
            other.goto(f"{server.url}/#wrong")
            other.get_by_text("the API key is missing or wrong", exact=False).wait_for()
            assert other.locator("#last pre").count() == 0
        finally:
            browser.close()
