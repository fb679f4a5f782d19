"""The real server on the bundled pair, and OpenAI's own client of it."""

from collections.abc import Iterator

import openai
import pytest

from tests.server.serving import Server, serving


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving("--temp", "0", "-n", "64") as server:
        yield server


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        yield client
