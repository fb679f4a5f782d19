"""Programs of others on a real server, each where it is installed: curl, llm, litellm, and openai's async client.

`openai` and `ollama` have tests of their own.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.cli.harness import TIMEOUT, environment, needs_pair
from tests.server.serving import LONG, Server, chat

pytestmark = needs_pair
HELLO: list[Any] = [{"role": "user", "content": LONG}]


@pytest.fixture(scope="module")
def expected(server: Server) -> str:
    text: str = server.post("/v1/chat/completions", **chat())["choices"][0]["message"]["content"]
    return text


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
def test_curl(server: Server, expected: str) -> None:
    """As the manual has it; and a stream by lines."""
    url = f"{server.url}/v1/chat/completions"
    for extra in ({}, {"stream": True}):
        body = json.dumps({"messages": HELLO, **extra})
        done = subprocess.run(["curl", "-sSN", url, "-d", body], capture_output=True, timeout=TIMEOUT, check=True)
        if not extra:
            assert json.loads(done.stdout)["choices"][0]["message"]["content"] == expected
            continue
        *lines, last = [line.removeprefix("data: ") for line in done.stdout.decode().split("\n\n") if line]
        assert last == "[DONE]"
        assert "".join(json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines) == expected


def test_the_async_client_streams(server: Server, expected: str) -> None:
    async def read() -> str:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            stream = await client.chat.completions.create(model="storyteller", messages=HELLO, stream=True)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(read()) == expected


@pytest.mark.skipif(find_spec("llm") is None, reason="llm is not installed")
def test_llm(server: Server, expected: str, tmp_path: Path) -> None:
    """By the file of models that the manual names."""
    told = [{"model_id": "localspec", "model_name": "storyteller", "api_base": f"{server.url}/v1"}]
    (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(told))  # YAML takes JSON
    command = [sys.executable, "-m", "llm", "-m", "localspec", "--key", "none", "--no-log"]
    env = environment({"LLM_USER_PATH": str(tmp_path)})
    for more in ([], ["--no-stream"]):
        done = subprocess.run([*command, *more, LONG], capture_output=True, timeout=TIMEOUT, env=env, check=False)
        assert done.stdout.decode().strip() == expected.strip(), done.stderr.decode()


@pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
def test_litellm(server: Server, expected: str) -> None:
    """In a process of its own: it changes much in the one that imports it."""
    program = (
        "import litellm, sys\n"
        "asked = dict(model='openai/storyteller', api_base=sys.argv[1], api_key='none',\n"
        "             messages=[{'role': 'user', 'content': sys.argv[2]}])\n"
        "print(litellm.completion(**asked).choices[0].message.content)\n"
        "print(''.join(chunk.choices[0].delta.content or '' for chunk in litellm.completion(**asked, stream=True)))\n"
    )
    command = [sys.executable, "-c", program, f"{server.url}/v1", LONG]
    env = environment({"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    done = subprocess.run(command, capture_output=True, timeout=2 * TIMEOUT, env=env, check=False)
    assert done.stdout.decode() == f"{expected}\n{expected}\n", done.stderr.decode()
