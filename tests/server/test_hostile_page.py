"""A page of another origin in a real browser, also under a name that it made lead here: it reads and starts nothing."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import TIMEOUT, needs_pair
from tests.server.serving import Server, serving

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [needs_pair, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")]
NAME = "evil.example"  # leads here
PAGE = """<!doctype html><title>hostile</title><body><script>
const chat = JSON.stringify({messages: [{role: "user", content: "Once"}], max_tokens: 5});
const generate = JSON.stringify({model: "storyteller", prompt: "Once", stream: false});
const ways = {
  models: () => fetch(base + "/v1/models"),
  health: () => fetch(base + "/health"),
  status: () => fetch(base + "/status"),
  page: () => fetch(base + "/"),
  pair: () => fetch(base + "/v1/pair"),
  chat: () => fetch(base + "/v1/chat/completions", {method: "POST", body: chat}),
  typed: () => fetch(base + "/v1/chat/completions", {method: "POST", body: chat,
                     headers: {"Content-Type": "application/json", "Authorization": "Bearer x"}}),
  opaque: () => fetch(base + "/v1/chat/completions", {method: "POST", body: chat, mode: "no-cors"}),
  ollama: () => fetch(base + "/api/generate", {method: "POST", body: generate, mode: "no-cors"}),
  beacon: async () => { navigator.sendBeacon(base + "/v1/chat/completions", chat); return {ok: false, type: "sent"}; },
  events: () => new Promise(done => { const one = new EventSource(base + "/v1/models");
                                      one.onopen = () => { one.close(); done({ok: true}); };
                                      one.onerror = () => { one.close(); done({ok: false}); }; }),
  socket: () => new Promise(done => { const one = new WebSocket(base.replace("http", "ws") + "/v1/models");
                                      one.onopen = () => done({ok: true}); one.onerror = () => done({ok: false}); }),
};
(async () => {
  const found = {};
  for (const [name, ask] of Object.entries(ways)) {
    const late = new Promise((_, fail) => setTimeout(fail, 15000));
    try { const told = await Promise.race([ask(), late]);
          found[name] = told.ok ? await told.text?.() ?? "open" : "refused"; }
    catch (error) { found[name] = "refused"; }
  }
  document.body.innerHTML = "<pre></pre>";
  document.querySelector("pre").textContent = JSON.stringify(found);
})();
</script>"""


@contextmanager
def hosted(base: str, port: int = 0) -> Iterator[int]:
    """Serve the page on a port, by default any that is free; `base` is what it attacks."""
    page = PAGE.replace("<script>", f"<script>const base = {json.dumps(base)};", 1).encode()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", port), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def visited(url: str, folder: Path) -> dict[str, Any]:
    """Return what the page at `url` found, in a browser for which its name leads to this machine."""
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}", "--dump-dom",
         "--virtual-time-budget=300000", f"--host-resolver-rules=MAP {NAME} 127.0.0.1", url],
        capture_output=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    (told,) = re.findall(r"<pre>(.*)</pre>", done.stdout.decode())
    found: dict[str, Any] = json.loads(unescape(told))
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.mark.parametrize("is_rebound", [False, True], ids=["another origin", "a name that was made to lead here"])
def test_a_page_reaches_nothing(server: Server, tmp_path: Path, *, is_rebound: bool) -> None:
    port = server.address[1]
    with hosted(f"http://{NAME}:{port}" if is_rebound else server.url) as own:
        found = visited(f"http://{NAME if is_rebound else '127.0.0.1'}:{own}/", tmp_path)
    assert len(found) == 12
    assert set(found.values()) == {"refused"}, found
    assert "localspec_answers_total 0\n" in server.read("/metrics").decode(), "nothing was answered unseen"


def test_the_same_page_reaches_who_lets_it_in(tmp_path: Path) -> None:
    """So it is the server that refuses, and not the page that fails."""
    with hosted("") as port:
        origin = f"http://127.0.0.1:{port}"
    with serving("--cors", origin) as server, hosted(server.url, port):
        found = visited(f"{origin}/", tmp_path)
    assert "storyteller" in found["models"]
    assert "choices" in found["chat"]
    assert found["status"] == found["socket"] == "refused"
