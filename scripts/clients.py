"""Runs programs of others against `localspec serve`, each from PyPI or npm in a home of its own; prints a table.

A program does a plain answer, a stream, a structured answer and the round trip of a call. Small models call badly, so
the texts of answers are scripted: a grammar forces each, and server, template, engine and parser are the real ones. A
request that brings a form of its own is answered by the model. `--real` scripts nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

TIMEOUT = 600  # seconds of one program
DONE = "All is done."
# Tools of agents that run a command, by the names that they have there.
SHELLS = ("bash", "shell", "exec_command", "run_shell_command", "shell_command", "Bash", "run_terminal_command")
COMMAND = "echo hi > hello.txt"
RESULT = re.compile(r"\brain\b")  # of a tool, for programs that tell it as text
EDIT = "hello.txt\n```\nhi\n```\n"
ANY_OBJECT = '{"type": "object"}'  # the form of a program that asks for any JSON
FORMS = ("schema", "regex", "grammar", "choices")


def answer_to(request: Any) -> str | None:
    """Return the text of the next answer, None where the model writes what a form leaves open."""
    if request.schema == ANY_OBJECT:
        return json.dumps({"hero": "king"})
    if not request.must_call and any(getattr(request, form) is not None for form in FORMS):
        return None
    if any("file listing" in message.content for message in request.messages):  # as aider asks for an edit
        return EDIT
    tools = {tool["function"]["name"]: tool["function"] for tool in json.loads(request.tools or "[]")}
    told = [message.content for message in request.messages if message.role == "user"]
    is_answered = any(message.role == "tool" for message in request.messages) or bool(RESULT.search(" ".join(told)))
    if not tools or (is_answered and "final_answer" not in tools and not request.must_call):
        return DONE
    names = ["final_answer"] if is_answered and "final_answer" in tools else [*filter(tools.get, SHELLS), *tools]
    call = json.dumps({"name": names[0], "arguments": _filled(tools[names[0]]["parameters"])})
    return call if request.must_call else f"<tool_call>\n{call}\n</tool_call>"


def _filled(schema: Any) -> Any:
    """Return a value of a schema with what it requires; a command is the one above."""
    properties = schema.get("properties", {})
    names = [*schema.get("required", []), *(name for name in ("command", "cmd") if name in properties)]
    return {name: _value(name, properties.get(name, {})) for name in dict.fromkeys(names)}


def _value(name: str, schema: Any) -> Any:
    kind = schema.get("type", "string")
    if name == "answer":
        return DONE
    if name in ("command", "cmd"):
        return ["bash", "-lc", COMMAND] if kind == "array" else COMMAND
    if "enum" in schema:
        return schema["enum"][0]
    return {"boolean": False, "integer": 1, "number": 1, "array": [], "object": {}}.get(kind, "Oslo")


def serve(arguments: list[str]) -> None:
    """Serve with scripted answers, in this process."""
    from localspec.cli import main as run
    from localspec.settings.jobs import Generate
    from localspec.worker.client import Worker

    start = Worker.start

    def scripted(self: Worker, job: Any) -> Any:
        if isinstance(job, Generate) and (text := answer_to(job.request)) is not None:
            job = Generate(replace(job.request, schema=None, grammar=f"root ::= {json.dumps(text)}"))
        return start(self, job)

    with patch.object(Worker, "start", scripted):
        sys.argv = ["localspec", "serve", *arguments]
        run()


@dataclass(frozen=True)
class Program:
    """A program, its packages, and how it is run: code of Python, or a command with files in its home.

    URL and MODEL stand for themselves. What it prints is a word for each thing that went well.
    """

    packages: tuple[str, ...]
    code: str = ""
    command: str = ""
    files: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)


WEATHER = """
import json, os
URL, MODEL = os.environ["URL"], os.environ["MODEL"]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
HERO = {"type": "object", "properties": {"hero": {"enum": ["king", "queen"]}}, "required": ["hero"],
        "additionalProperties": False}
def ok(name, is_right, said=""):
    print(name if is_right else f"{name} FAILED: {said!r}"[:300], flush=True)
"""
OPENAI = """
from openai import OpenAI
c = OpenAI(base_url=URL + "/v1", api_key="none", timeout=300)
hi = [{"role": "user", "content": "Hello"}]
made = c.chat.completions.create(model=MODEL, messages=hi)
ok("plain", "done" in made.choices[0].message.content, made)
stream = c.chat.completions.create(model=MODEL, messages=hi, stream=True)
said = "".join(part.choices[0].delta.content or "" for part in stream)
ok("stream", "done" in said, said)
form = {"type": "json_schema", "json_schema": {"name": "h", "schema": HERO, "strict": True}}
made = c.chat.completions.create(model=MODEL, messages=hi, response_format=form, max_tokens=300)
ok("structured", json.loads(made.choices[0].message.content)["hero"] in ("king", "queen"), made)
tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
made = c.chat.completions.create(model=MODEL, messages=hi, tools=tools).choices[0]
call = made.message.tool_calls[0]
turns = [*hi, made.message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
last = c.chat.completions.create(model=MODEL, messages=turns, tools=tools).choices[0].message.content
ok("call", json.loads(call.function.arguments) == {"city": "Oslo"} and "done" in last, last)
made = c.responses.create(model=MODEL, input="Hello")
ok("responses", "done" in made.output_text, made)
"""
ANTHROPIC = """
from anthropic import Anthropic
c = Anthropic(base_url=URL, api_key="none", timeout=300)
ask = dict(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "Hello"}])
ok("plain", "done" in c.messages.create(**ask).content[0].text)
with c.messages.stream(**ask) as stream:
    said = "".join(stream.text_stream)
ok("stream", "done" in said, said)
form = {"format": {"type": "json_schema", "schema": HERO}}
made = c.messages.create(**ask, extra_body={"output_config": form})
ok("structured", json.loads(made.content[0].text)["hero"] in ("king", "queen"), made)
tools = [{"name": "weather", "description": "d", "input_schema": WEATHER}]
made = c.messages.create(**ask, tools=tools)
call = made.content[-1]
turns = [*ask["messages"], {"role": "assistant", "content": made.content},
         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}]
last = c.messages.create(**{**ask, "messages": turns}, tools=tools).content[0].text
ok("call", call.input == {"city": "Oslo"} and "done" in last, last)
ok("count", c.messages.count_tokens(model=MODEL, messages=ask["messages"]).input_tokens > 3)
"""
LITELLM = """
import litellm
litellm.suppress_debug_info = True
hi = [{"role": "user", "content": "Hello"}]
tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
for kind, base in (("openai", "/v1"), ("ollama_chat", ""), ("anthropic", ""), ("hosted_vllm", "/v1")):
    ask = dict(model=f"{kind}/{MODEL}", api_base=URL + base, api_key="none", messages=hi, timeout=300)
    ok(f"{kind}-plain", "done" in litellm.completion(**ask).choices[0].message.content)
    said = "".join(e.choices[0].delta.content or "" for e in litellm.completion(**ask, stream=True))
    ok(f"{kind}-stream", "done" in said, said)
    made = litellm.completion(**ask, tools=tools).choices[0].message
    call = made.tool_calls[0]
    turns = [*hi, made.model_dump(), {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": "rain"}]
    last = litellm.completion(**{**ask, "messages": turns}, tools=tools).choices[0].message.content
    ok(f"{kind}-call", json.loads(call.function.arguments) == {"city": "Oslo"} and "done" in last, last)
    form = {"type": "json_schema", "json_schema": {"name": "h", "schema": HERO, "strict": True}}
    made = litellm.completion(**ask, response_format=form, max_tokens=300).choices[0].message.content
    ok(f"{kind}-structured", json.loads(made)["hero"] in ("king", "queen"), made)
"""
LANGCHAIN = '''
from langchain_openai import ChatOpenAI
from langchain_ollama import ChatOllama
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_core.messages import HumanMessage, ToolMessage
@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return "rain"
for name, chat in (("openai", ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key="none", timeout=300)),
                   ("ollama", ChatOllama(model=MODEL, base_url=URL)),
                   ("anthropic", ChatAnthropic(model=MODEL, base_url=URL, api_key="none", timeout=300))):
    ok(f"{name}-plain", "done" in chat.invoke("Hello").text)
    ok(f"{name}-stream", "done" in "".join(part.text for part in chat.stream("Hello")))
    form = {"title": "h", "description": "d", **HERO}
    method = "function_calling" if name == "anthropic" else "json_schema"
    made = chat.with_structured_output(form, method=method).invoke("Hi")
    ok(f"{name}-structured", made["hero"] in ("king", "queen"), made)
    bound = chat.bind_tools([weather])
    first = bound.invoke("Hello")
    call = first.tool_calls[0]
    last = bound.invoke([HumanMessage("Hello"), first, ToolMessage("rain", tool_call_id=call["id"])])
    ok(f"{name}-call", call["args"] == {"city": "Oslo"} and "done" in last.text, last)
'''
LLM = """
import pathlib, subprocess, sys
home = pathlib.Path(os.environ["LLM_USER_PATH"]); home.mkdir(exist_ok=True)
told = [{"model_id": "localspec", "model_name": MODEL, "api_base": URL + "/v1", "supports_tools": True,
         "supports_schema": True}]
(home / "extra-openai-models.yaml").write_text(json.dumps(told))
code = 'def weather(city: str) -> str:\\n    "Tell it."\\n    return "rain"'
def run(*words):
    done = subprocess.run([sys.executable, "-m", "llm", "--no-log", *words], capture_output=True, text=True)
    return done.stdout + done.stderr[-300:]
for model, key in (("localspec", ["--key", "none"]), ("ollama/" + MODEL, [])):
    where = ["-m", model, *key]
    for name, words in (("plain", ["--no-stream", "Hello"]), ("stream", ["Hello"]),
                        ("call", ["--functions", code, "Hello"])):
        said = run(*where, *words)
        if "does not support tools" in said:
            print(f"{model}-call left out: its template has no tools", flush=True)
        else:
            ok(f"{model}-{name}", "done" in said, said)
    said = run(*where, "--schema", json.dumps(HERO), "Hello")
    ok(f"{model}-structured", "hero" in said, said)
"""
INSTRUCTOR = """
import instructor
from openai import OpenAI
from typing import Literal
from pydantic import BaseModel
class Hero(BaseModel):
    hero: Literal["king", "queen"]
hi = [{"role": "user", "content": "Hello"}]
for mode in ("TOOLS", "JSON", "JSON_SCHEMA"):
    c = instructor.from_openai(OpenAI(base_url=URL + "/v1", api_key="none"), mode=getattr(instructor.Mode, mode))
    made = c.chat.completions.create(model=MODEL, messages=hi, response_model=Hero, max_tokens=300, max_retries=0)
    ok(f"structured-{mode}", made.hero in ("king", "queen"), made)
*_, last = c.chat.completions.create_partial(model=MODEL, messages=hi, response_model=Hero, max_tokens=300)
ok("stream", last.hero in ("king", "queen"), last)
"""
PYDANTIC = """
from typing import Literal
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.anthropic import AnthropicProvider
class Hero(BaseModel):
    hero: Literal["king", "queen"]
provider = OpenAIProvider(base_url=URL + "/v1", api_key="none")
for name, model in (("chat", OpenAIChatModel(MODEL, provider=provider)),
                    ("responses", OpenAIResponsesModel(MODEL, provider=provider)),
                    ("anthropic", AnthropicModel(MODEL, provider=AnthropicProvider(base_url=URL, api_key="none")))):
    ok(f"{name}-plain", "done" in Agent(model).run_sync("Hello").output)
    agent, cities = Agent(model), []
    @agent.tool_plain
    def weather(city: str) -> str:
        cities.append(city)
        return "rain"
    last = agent.run_sync("Hello").output
    ok(f"{name}-call", cities == ["Oslo"] and "done" in last, last)
    if name != "anthropic":
        made = Agent(model, output_type=NativeOutput(Hero)).run_sync("Hello").output
        ok(f"{name}-structured", made.hero in ("king", "queen"), made)
"""
SMOLAGENTS = """
from smolagents import OpenAIServerModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, MessageRole
model = OpenAIServerModel(model_id=MODEL, api_base=URL + "/v1", api_key="none")
hi = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": "Hello"}])]
ok("plain", "done" in model.generate(hi).content)
ok("stream", "done" in "".join(part.content or "" for part in model.generate_stream(hi)))
form = {"type": "json_schema", "json_schema": {"name": "h", "schema": HERO, "strict": True}}
made = model.generate(hi, response_format=form, max_tokens=300).content
ok("structured", json.loads(made)["hero"] in ("king", "queen"), made)
cities = []
class Weather(Tool):
    name, description, output_type = "weather", "Tell the weather.", "string"
    inputs = {"city": {"type": "string", "description": "where"}}
    def forward(self, city: str) -> str:
        cities.append(city)
        return "rain"
last = ToolCallingAgent(tools=[Weather()], model=model, max_steps=3, verbosity_level=0).run("Hello")
ok("call", cities == ["Oslo"] and "done" in str(last), last)
"""
LM_EVAL = """
import pathlib, urllib.request
import lm_eval
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager
class Tokenizer:  # the server's own: lm-eval counts the tokens of each choice
    eot_token = 0
    def encode(self, text, **_):
        asked = urllib.request.Request(URL + "/tokenize", json.dumps({"content": text}).encode())
        return json.load(urllib.request.urlopen(asked))["tokens"]
    def encode_batch(self, texts, **_):
        return list(map(self.encode, texts))
    def decode(self, tokens):
        return ""
task = pathlib.Path("tasks"); task.mkdir(exist_ok=True)
rows = [{"q": "Once upon a time there was a little", "a": [" girl", " parliament"], "y": 0},
        {"q": "She was very", "a": [" happy", " amortised"], "y": 0}]
(task / "rows.jsonl").write_text("\\n".join(map(json.dumps, rows)))
(task / "ends.yaml").write_text(json.dumps({
    "task": "ends", "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(task.resolve() / "rows.jsonl")}},
    "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "{{q}}", "doc_to_choice": "{{a}}",
    "doc_to_target": "y", "metric_list": [{"metric": "acc"}]}))
lm = LocalCompletionsAPI(model=MODEL, base_url=URL + "/v1/completions", tokenizer_backend=None)
lm.tokenizer, lm.tokenizer_backend, lm.tokenized_requests = Tokenizer(), "tiktoken", True
found = lm_eval.simple_evaluate(lm, tasks=["ends"], task_manager=TaskManager(include_path=str(task)))
ok("logprobs", found["results"]["ends"]["acc,none"] == 1.0, found["results"])
"""
AIDER = """
import subprocess, sys, pathlib
file = pathlib.Path("hello.txt")
file.write_text("none\\n")
done = subprocess.run(
    [sys.executable, "-m", "aider", "--openai-api-base", URL + "/v1", "--openai-api-key", "none", "--model",
     "openai/" + MODEL, "--edit-format", "whole", "--no-git", "--yes-always", "--no-check-update",
     "--analytics-disable", "--no-show-model-warnings", "--message", "Write hi.", "hello.txt"],
    capture_output=True, text=True)
ok("edit", file.read_text() == "hi\\n", done.stdout[-300:] + done.stderr[-300:])
"""
CODEX = "--dangerously-bypass-approvals-and-sandbox"
PROGRAMS = {
    "openai": Program(("openai",), OPENAI),
    "anthropic": Program(("anthropic",), ANTHROPIC),
    "litellm": Program(("litellm",), LITELLM, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
    "langchain": Program(("langchain-openai", "langchain-ollama", "langchain-anthropic"), LANGCHAIN),
    "llm": Program(("llm", "llm-ollama"), LLM, env={"LLM_USER_PATH": "HOME/llm", "OLLAMA_HOST": "URL"}),
    "instructor": Program(("instructor",), INSTRUCTOR),
    "pydantic-ai": Program(("pydantic-ai-slim[openai,anthropic]",), PYDANTIC),
    "smolagents": Program(("smolagents[openai]",), SMOLAGENTS),
    "lm-eval": Program(("lm-eval[api]",), LM_EVAL),
    "aider": Program(("aider-chat",), AIDER, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"}),
    "codex": Program(("@openai/codex",), command=f"codex exec --skip-git-repo-check {CODEX}", files={
        ".codex/config.toml": 'model = "MODEL"\nmodel_provider = "l"\n[model_providers.l]\nname = "l"\n'
                              'base_url = "URL/v1"\nwire_api = "responses"\n'}),
    "claude-code": Program(("@anthropic-ai/claude-code",), command="claude --dangerously-skip-permissions -p", env={
        "ANTHROPIC_BASE_URL": "URL", "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "MODEL", "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}),
    "opencode": Program(("opencode-ai",), command="opencode run -m l/MODEL", files={
        ".config/opencode/opencode.json": json.dumps({
            "provider": {"l": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "URL/v1"},
                               "models": {"MODEL": {}}}}, "permission": "allow", "autoupdate": False})}),
    "qwen-code": Program(("@qwen-code/qwen-code",), command="qwen --yolo -p", env={
        "OPENAI_BASE_URL": "URL/v1", "OPENAI_API_KEY": "none", "OPENAI_MODEL": "MODEL"}),
    "pi": Program(("@mariozechner/pi-coding-agent",), command="pi --provider l --model MODEL -p", files={
        ".pi/agent/models.json": json.dumps({"providers": {"l": {
            "baseUrl": "URL/v1", "apiKey": "none", "api": "openai-completions", "models": [{"id": "MODEL"}]}}})}),
    "continue": Program(("@continuedev/cli",), command="cn --auto --config HOME/config.yaml -p", files={
        "config.yaml": json.dumps({"name": "l", "version": "1.0.0", "schema": "v1", "models": [{
            "name": "l", "provider": "openai", "model": "MODEL", "apiBase": "URL/v1", "apiKey": "none",
            "roles": ["chat"], "capabilities": ["tool_use"]}]})}, env={"CONTINUE_TELEMETRY_ENABLED": "0"}),
}  # fmt: skip


def tried(name: str, home: Path, url: str, model: str) -> tuple[str, list[str]]:
    """Install and run a program; return its version, and what it did or did not."""
    program = PROGRAMS[name]
    is_npm = bool(program.command)
    if is_npm and shutil.which("npm") is None:
        return "", ["skipped: npm is missing"]
    log = (home / "install.log").open("w")
    if is_npm:
        install = ["npm", "install", "--prefix", str(home / "npm"), "--no-audit", "--no-fund", *program.packages]
        found = home / "npm/node_modules" / program.packages[0] / "package.json"
    else:
        if not (home / "venv").exists():
            subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
        install = [str(home / "venv/bin/pip"), "install", "-q", *program.packages]
        found = home / "version"
    is_there = (home / "installed").exists()
    if not is_there and subprocess.run(install, stdout=log, stderr=log, check=False).returncode:
        return "", [f"not installed: {(home / 'install.log').read_text()[-200:]}"]
    (home / "installed").touch()
    python = str(home / "venv/bin/python")
    if is_npm:
        version = json.loads(found.read_text())["version"]
    else:
        base = program.packages[0].partition("[")[0]
        ask = f"from importlib.metadata import version; print(version({base!r}))"
        version = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()

    def put(text: str) -> str:
        told = {"URL": url, "MODEL": model, "HOME": str(home)}
        return re.sub(rf"\b({'|'.join(told)})\b", lambda word: told[word[0]], text)

    for path, text in program.files.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(put(text))
    work = home / "work"
    work.mkdir(exist_ok=True)
    path = f"{home / 'npm/node_modules/.bin'}:{os.environ['PATH']}"
    own = {name: put(value) for name, value in program.env.items()}
    env = {"PATH": path, "HOME": str(home), "URL": url, "MODEL": model, "TERM": "dumb", **own}
    command = [*put(program.command).split(), "Create a file hello.txt with the content hi."]
    if not is_npm:
        command = [python, "-c", WEATHER + program.code]
    with (home / "run.log").open("w") as output:
        process = subprocess.Popen(
            command, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            status = process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
    said = (home / "run.log").read_text(errors="replace")
    if not is_npm:
        return version, said.splitlines() if status == 0 else [*said.splitlines()[-4:], f"FAILED: exit {status}"]
    did = [word for word, is_done in (("call", (work / "hello.txt").exists()), ("answer", DONE in said)) if is_done]
    return version, did if len(did) == 2 and status == 0 else [*did, f"FAILED: exit {status}: {said[-300:]!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"of {', '.join(PROGRAMS)}; all without")
    parser.add_argument("-m", "--model", default="storyteller", help="the pair that is served")
    parser.add_argument("--folder", type=Path, help="where programs are installed and kept (a new folder, which goes)")
    parser.add_argument("--real", action="store_true", help="let the model write its answers")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
    unknown = [name for name in asked.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"there is no program {unknown[0]}; one of {', '.join(PROGRAMS)}")
    folder = (asked.folder or Path(tempfile.mkdtemp(prefix="localspec-clients-"))).resolve()
    words = [asked.model, "--port", "0", "--json", "--ctx", "65536", "--temp", "0"]
    own = [sys.executable, "-m", "localspec", "serve"] if asked.real else [sys.executable, __file__, "--serve"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen([*own, *words], stdout=subprocess.PIPE, stderr=log, text=True)
    failed = 0
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        for name in asked.programs or PROGRAMS:
            home = folder / name
            home.mkdir(exist_ok=True)
            version, lines = tried(name, home, url, Path(asked.model).name)
            failed += any("FAILED" in line for line in lines)
            print(f"| {name} | {version} | {', '.join(lines)} |", flush=True)
    finally:
        server.terminate()
        server.wait()
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return min(failed, 1)


if __name__ == "__main__":
    raise SystemExit(main())
