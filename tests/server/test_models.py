"""`--models`: a request's name loads the pair that it means, once the running answer has ended."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from localspec.models.gguf.info import model_info
from localspec.models.gguf.shards import read_model
from tests.cli.harness import PAIR, assert_one_line, json_of, localspec, needs_pair, run_engine, wait_for
from tests.integration.pair import TARGET
from tests.server.serving import Server, chat, serving

pytestmark = needs_pair
CHAT = "/v1/chat/completions"
ENDLESS: dict[str, Any] = {"max_tokens": 100_000, "logit_bias": {"2": -1e6, "1": -1e6, "0": -1e6}}


def put(home: Path, name: str, weights: bytes, **layers: object) -> None:
    name, _, tag = name.partition(":")
    blobs, manifests = home / "blobs", home / "manifests" / "registry.ollama.ai" / "library" / name
    blobs.mkdir(parents=True, exist_ok=True)
    manifests.mkdir(parents=True)
    wire = []
    for kind, content in {"model": weights, **layers}.items():
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = hashlib.sha256(raw).hexdigest()
        (blobs / f"sha256-{digest}").write_bytes(raw)
        wire.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"})
    (manifests / (tag or "latest")).write_text(json.dumps({"layers": wire}))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Ollama's: a small model that works, and one that is cut off."""
    home, weights = tmp_path_factory.mktemp("ollama"), (PAIR / "draft-q8_0.gguf").read_bytes()
    put(home, "tiny", weights)
    put(home, "broken", weights[:200_000])
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    with serving(
        "--models", "all", "--temp", "0", "--ctx", "20000", "--method", "plain", env={"OLLAMA_MODELS": str(home)}
    ) as server:
        yield server


def model(server: Server) -> str:
    return str(server.ask("GET", "/props")[1]["model_alias"])


def test_a_name_loads_its_pair(server: Server) -> None:
    first = server.post(CHAT, **chat(max_tokens=8))
    other = server.post(CHAT, **chat(max_tokens=8, model="tiny"))
    assert (first["model"], other["model"]) == ("storyteller", "tiny:latest")
    assert model(server) == "tiny:latest"
    alone = run_engine("run", "-m", str(PAIR / "draft-q8_0.gguf"), "--temp", "0", "-n", "8", *chat_words())
    assert other["choices"][0]["message"]["content"].strip() == alone.stdout.decode().strip()
    again = server.post(CHAT, **chat(max_tokens=8))
    assert again["choices"] == first["choices"]
    assert model(server) == "storyteller"


def test_each_pair_of_a_server_is_listed(server: Server) -> None:
    for name in ("storyteller", "tiny"):
        server.post(CHAT, **chat(max_tokens=1, model=name))
    held = server.ask("GET", "/api/ps")[1]["models"]
    assert {each["name"] for each in held} == {"storyteller", "tiny:latest"}
    engines = json_of(localspec("ps", "--json"))["engines"]
    here = {each["pair"] for each in engines if each["for"] == [f"serve {server.process.pid}"]}
    assert here == {"storyteller", "tiny:latest"}


def chat_words() -> list[str]:
    """Return the words that `chat` says."""
    return [str(chat()["messages"][0]["content"])]


def test_every_api_loads_by_name(server: Server) -> None:
    assert server.post("/api/generate", model="tiny", prompt="Once", stream=False)["model"] == "tiny:latest"
    assert server.post("/completion", model="storyteller", prompt="Once", n_predict=2)["model"] == "storyteller"
    assert server.post("/tokenize", model="tiny:latest", content="Once")["tokens"]
    assert model(server) == "tiny:latest"
    answer = server.post("/api/chat", model="storyteller", messages=chat()["messages"], stream=False)
    assert answer["model"] == "storyteller"


def test_the_running_answer_holds_no_other_pair_up(server: Server) -> None:
    """Who asks for another pair is answered meanwhile, and the answer at hand stays whole."""
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(server.post, CHAT, **chat(max_tokens=2000, logit_bias={"2": -1e6}))
        wait_for(lambda: server.queue()[0])
        other = server.post(CHAT, **chat(max_tokens=2, model="tiny"))
        assert other["model"] == "tiny:latest"
        assert not running.done()
        assert running.result()["usage"]["completion_tokens"] == 2000


def test_what_could_be_loaded_is_listed(server: Server) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
        names = [each.id for each in client.models.list()]
        assert names[0] == "storyteller"
        assert {"tiny:latest", "broken:latest"} <= set(names)
        assert client.models.retrieve("tiny:latest").id == "tiny:latest"
    tags = server.ask("GET", "/api/tags")[1]["models"]
    assert [each["name"] for each in tags] == names
    (tiny,) = (each for each in tags if each["name"] == "tiny:latest")
    assert tiny["size"] == (PAIR / "draft-q8_0.gguf").stat().st_size
    assert server.post("/api/show", model="tiny")["details"]["format"] == "gguf"


def test_show_has_the_models_own_context_and_template(server: Server) -> None:
    """And not the context that is open at the time."""
    file = model_info(read_model(PAIR / "target-q8_0.gguf"))
    told = server.post("/api/show", model="storyteller")
    assert told["model_info"][f"{file.architecture}.context_length"] == file.n_ctx_train
    assert told["template"] == (file.chat_template or "")


def test_show_needs_no_load(server: Server, home: Path) -> None:
    """Programs may ask what each model can do before a request names one."""
    put(home, "unloaded", (PAIR / "draft-q8_0.gguf").read_bytes() + bytes(3))
    shown = [server.post("/api/show", model=name) for name in ("unloaded", "tiny")]
    held = [each["name"] for each in server.ask("GET", "/api/ps")[1]["models"]]
    assert "unloaded:latest" not in held
    info = shown[0]["model_info"]
    file = model_info(read_model(PAIR / "draft-q8_0.gguf"))
    assert info[f"{file.architecture}.context_length"] == file.n_ctx_train
    assert info["general.parameter_count"] == file.n_params
    assert shown[0]["template"] == (file.chat_template or "")
    assert shown[0]["details"] == shown[1]["details"]
    assert shown[0]["details"]["quantization_level"] == "Q8_0"
    assert shown[0]["capabilities"] == shown[1]["capabilities"]


def test_a_model_that_comes_later(server: Server, home: Path) -> None:
    put(home, "late", (PAIR / "draft-q8_0.gguf").read_bytes() + b"\0")
    assert "late:latest" in [each["id"] for each in server.ask("GET", "/v1/models")[1]["data"]]
    assert server.post(CHAT, **chat(max_tokens=1, model="late"))["model"] == "late:latest"


@pytest.mark.parametrize("name", ["nonsense", "/etc/passwd", str(PAIR / "target-q8_0.gguf"), "../tiny", "tiny+none"])
def test_an_unknown_name(server: Server, name: str) -> None:
    """No path is a name, whatever lies there."""
    status, told, _ = server.ask("POST", CHAT, chat(model=name))
    assert (status, told["error"]["code"], told["error"]["param"]) == (404, "model_not_found", "model")
    assert "'storyteller' and" in told["error"]["message"]
    assert "/v1/models" in told["error"]["message"]
    status, told, _ = server.ask("POST", "/api/chat", {"model": name, "messages": chat()["messages"]})
    assert status == 404
    assert told["error"].startswith("there is no model")
    assert server.ask("POST", "/completion", {"model": name, "prompt": "Once"})[0] == 404


def test_a_file_that_is_damaged_costs_its_own_answer(server: Server) -> None:
    status, told, _ = server.ask("POST", CHAT, chat(model="broken"))
    assert status == 503
    assert "cut off" in told["error"]["message"]
    assert server.post(CHAT, **chat(max_tokens=2))["usage"]["completion_tokens"] == 2


def test_no_reply_names_a_folder_of_the_server(server: Server, home: Path) -> None:
    """Neither that of a file that has gone, nor that of one that is loaded. The model has the name that was asked."""
    weights = (PAIR / "draft-q8_0.gguf").read_bytes() + b"\0\0"
    put(home, "gone", weights)
    server.post("/api/show", model="gone")
    (home / "blobs" / f"sha256-{hashlib.sha256(weights).hexdigest()}").unlink()
    status, told, _ = server.ask("POST", CHAT, chat(model="gone"))
    assert (status, told["error"]["message"]) == (503, "gone:latest does not exist")
    events = server.ask("POST", "/v1/events", {"job": {"command": "generate", "request": {"prompt": "Once"}}})[1]
    pair = server.ask("GET", "/v1/pair")[1]
    assert pair["loaded"]["target"]["path"] == "target-q8_0.gguf"
    for reply in (events.decode(), str(pair)):
        assert str(home) not in reply
        assert str(PAIR) not in reply


@pytest.mark.parametrize("name", ["TINY", "Tiny:Latest", "STORYTELLER", "Target-Q8_0"])
def test_case_says_nothing(server: Server, name: str) -> None:
    """A request names a model as -m and Ollama do."""
    made = server.post("/completion", model=name, prompt="Once", n_predict=1)
    assert made["model"] == ("tiny:latest" if name[0].lower() == "t" and name[1].lower() == "i" else "storyteller")


def test_named_ones_alone(home: Path) -> None:
    with serving("--models", "Tiny,", env={"OLLAMA_MODELS": str(home)}) as server:
        assert [each["id"] for each in server.ask("GET", "/v1/models")[1]["data"]] == ["storyteller", "tiny:latest"]
        assert server.post(CHAT, **chat(max_tokens=1, model="tiny"))["model"] == "tiny:latest"
        assert server.ask("POST", CHAT, chat(model="broken"))[0] == 404


@pytest.mark.parametrize("name", ["gone", "g" * 300, "~nobody/gone"], ids=["short", "too long for a file", "of nobody"])
def test_a_name_that_is_not_here(home: Path, name: str) -> None:
    done = localspec("serve", "storyteller", "--port", "0", "--models", name, env={"OLLAMA_MODELS": str(home)})
    assert_one_line(done, 3, f"--models: no model here is called {name}", "localspec ls")


def test_a_file_needs_a_name() -> None:
    """It was told that the file is not on this machine."""
    done = localspec("serve", "storyteller", "--port", "0", "--models", str(TARGET))
    told = f"--models: no model here is called {TARGET} — try: localspec pairs add NAME {TARGET}"
    assert_one_line(done, 3, told)


def test_what_ollama_gives_to_a_model_begins_each_chat_with_it(tmp_path: Path) -> None:
    """A system message of the request takes the place of the model's; another model has nothing of it.

    Requests may leave out the tag.
    """
    weights = (PAIR / "draft-q8_0.gguf").read_bytes()
    before = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Arr."}]
    put(tmp_path, "pirate:1b", weights, system=b"Be a pirate.\n",
        params={"temperature": 0.1, "num_predict": 5, "stop": ["zz", "y"], "top_k": 40, "repeat_last_n": 7},
        messages=[*before, {"role": "tool", "content": "no"}])  # fmt: skip
    put(tmp_path, "plain", weights + b"\0")
    put(tmp_path, "sailor:2b", weights + b"\0\0")
    run_options = ["--template", str(tmp_path / "template.jinja"), "--json", "-n", "1", "Hi"]
    own, hi = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    (tmp_path / "template.jinja").write_text(template)
    file = str(tmp_path / "template.jinja")
    environment = {"OLLAMA_MODELS": str(tmp_path)}
    with serving("--models", "all", "--template", file, pair="pirate:1b", env=environment) as server:

        def prompt(*messages: dict[str, str], model: str = "pirate") -> str:
            made = server.post("/apply-template", messages=messages, model=model)["prompt"]
            return str(made).removeprefix("<|endoftext|>")

        assert prompt(hi) == "<system>Be a pirate.<user>Who?<assistant>Arr.<user>Hi"
        assert prompt(own, hi) == "<system>Be brief.<user>Who?<assistant>Arr.<user>Hi"
        assert prompt(hi, model="plain") == prompt(hi, model="Sailor") == "<user>Hi"
        n_read = [
            server.post("/v1/messages/count_tokens", messages=[hi])["input_tokens"],
            server.post("/v1/responses", input="Hi", max_output_tokens=1)["usage"]["input_tokens"],
            server.post("/api/generate", prompt="Hi", stream=False, options={"num_predict": 1})["prompt_eval_count"],
            server.post(CHAT, messages=[hi], max_tokens=1)["usage"]["prompt_tokens"],
            server.post("/api/chat", messages=[hi], stream=False, options={"num_predict": 1})["prompt_eval_count"],
            json_of(localspec("run", "--server", server.url, *run_options))["timings"]["prompt_n"],
        ]
        assert len(set(n_read)) == 1, n_read
        assert server.post("/api/generate", prompt="Hi", raw=True, stream=False)["prompt_eval_count"] < n_read[0]
        assert server.post("/api/chat", messages=[hi], stream=False)["eval_count"] <= 5
        shown, plain = server.post("/api/show", model="pirate"), server.post("/api/show", model="plain")
        server.stop()
        assert server.process.stderr is not None
        told = server.process.stderr.read().decode()
    parameters = {"repeat_last_n": "7", "temperature": "0.1", "num_predict": "5", "stop": '"zz"'}
    lines = [*parameters.items(), ("stop", '"y"')]
    assert shown["parameters"] == "\n".join(f"{name:<30} {value}" for name, value in lines)
    assert (shown["system"], shown["messages"]) == ("Be a pirate.", before)
    assert shown["modelfile"].splitlines() == [
        "FROM pirate:1b",
        f'TEMPLATE """{template}"""',
        'SYSTEM """Be a pirate."""',
        *(f"PARAMETER {name} {value}" for name, value in lines),
        'MESSAGE user """Who?"""',
        'MESSAGE assistant """Arr."""',
    ]
    assert [plain[name] for name in ("parameters", "system", "messages")] == ["", "", []]
    assert plain["modelfile"] == f'FROM plain:latest\nTEMPLATE """{template}"""'
    assert told.splitlines()[:2] == [
        "the system message is Ollama's, of pirate:1b, where a request has none",
        "2 messages of Ollama's pirate:1b go before yours",
    ]
