"""Records what users and programs rely on, on the bundled pair: JSON, events, HTTP, errors, help, fields.

    scripts/golden              write all records again
    scripts/golden http help    write these again

It runs the program as people do, and knows nothing of its modules. `tests/golden/test_golden.py` compares the records
with the present. Times, sizes, paths, ids and versions are masked.
"""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = Path.cwd()
TIMEOUT = 120  # seconds
ONCE = "Once upon a time"
SHORT = "-m storyteller -n 12 --seed 1 --no-save"
CHAT = [{"role": "user", "content": ONCE}]
# Keys whose values are of this machine, this moment or this version.
MASKED = re.compile(
    r"^(t|ms|.*_ms|.*_per_second|tok_per_s|.*_duration|bytes|.*_bytes|size|created\w*|completed_at|modified_at|expires_at"
    r"|session|run|id|item_id|response_id|call_id|path|target_path|versions?|llama_cpp|build_info|system_fingerprint|fingerprint"
    r"|digest|verdict|cause|baseline|speedup\w*|(peak_)?memory|threads|n_threads|devices?|way|parent_model|model_path|expected"
    r"|timings|load|wall|age_s|modified|details_size|total_slots)$"
)
# The program, started once: each case runs in a fork of it, which saves the imports.
FORKS = r"""
import importlib, json, os, pkgutil, sys, tempfile
import localspec.cli
for module in pkgutil.walk_packages(localspec.cli.__path__, "localspec.cli."):
    importlib.import_module(module.name)
for line in sys.stdin.buffer:
    args, stdin = json.loads(line)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode()); given.seek(0)
        pid = os.fork()
        if pid == 0:
            for fd, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), fd)
            sys.stdin = open(0, encoding="utf-8", closefd=False)
            sys.argv = ["localspec", *args]
            try:
                localspec.cli.main()
            except SystemExit as end:
                code = end.code
            sys.stdout.flush(); sys.stderr.flush()
            os._exit(code or 0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0); err.seek(0)
        answer = [code, out.read().decode(), err.read().decode()]
        sys.stdout.write(json.dumps(answer) + "\n"); sys.stdout.flush()
"""
RUNS = {
    "greedy": f"run --json {SHORT} --temp 0 --method draft-model -k 3 '{ONCE}'",
    "sampled": f"run --json {SHORT} --temp 0.8 --method draft-model -k 3 '{ONCE}'",
    "copies": f"run --json {SHORT} --temp 0 --method suffix -k 4 '{ONCE}'",
    "tree": f"run --json {SHORT} --temp 0.8 --method draft-model --tree static:2,1 '{ONCE}'",
    "plain with logprobs": f"run --json {SHORT} --temp 0 -n 2 --method plain --logprobs 2 '{ONCE}'",
    "raw, stopped": f"run --json {SHORT} --temp 0 --raw --method plain --stop man '{ONCE}'",
    "choices": f"run --json {SHORT} --temp 0 --method plain --choices 'yes,no' 'Is the sky blue?'",
    "prompt too long": f"run --json {SHORT} --ctx 64 '{'word ' * 80}'",
    "events, greedy": f"run --events {SHORT} --temp 0 --method draft-model -k 3 '{ONCE}'",
    "events, sampled": f"run --events {SHORT} --temp 0.8 --method draft-model -k 3 '{ONCE}'",
    "text": f"run {SHORT} --temp 0 '{ONCE}'",
    "line chat": f"chat --plain {SHORT} --temp 0",
}
GIVEN = {"line chat": f"{ONCE}\n/nosuch\n/set temp 9999\n/set gpu some\nThe end\n"}  # standard input
EVENTS = {
    "seq": 0,
    "command": "generate",
    "request": {
        "prompt": ONCE,
        "max_tokens": 4,
        "speculation": {"method": "plain"},
        "sampling": {"temperature": 0.0, "seed": 1},
    },
}
FEW, SOME = {"max_tokens": 8, "temperature": 0, "seed": 1}, {"max_tokens": 8, "temperature": 0.8, "seed": 1}
OPTIONS = {"options": {"num_predict": 8, "temperature": 0, "seed": 1}}
REQUESTS: list[tuple[str, str, Any]] = [
    *(("GET", path, None) for path in (
        "/", "/health", "/v1/models", "/v1/models/storyteller", "/v1/models/nosuch", "/props", "/api/tags", "/api/ps",
        "/api/version", "/v1/pair", "/v1/embeddings", "/nosuch",
    )),
    *(("POST", f"{at}/chat/completions", {"messages": CHAT, **FEW}) for at in ("", "/v1")),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **SOME}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "stream": True}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "max_tokens": 1, "logprobs": True, "top_logprobs": 2}),
    ("POST", "/v1/chat/completions", {"messages": []}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "temperature": 9999}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "n": 3}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, "model": "nosuch"}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "method": "nosuch"}),
    ("POST", "/v1/chat/completions", {"messages": CHAT, **FEW, "ctx": 64}),
    ("POST", "/v1/chat/completions", "no JSON"),
    ("POST", "/v1/completions", {"prompt": ONCE, **FEW}),
    ("POST", "/v1/completions", {"prompt": ONCE, **SOME, "stream": True, "stream_options": {"include_usage": True}}),
    ("POST", "/v1/completions", {"prompt": ONCE, "suffix": "man", **FEW}),
    ("POST", "/v1/responses", {"input": ONCE, "max_output_tokens": 8, "temperature": 0}),
    ("POST", "/v1/responses", {"input": ONCE, "max_output_tokens": 8, "temperature": 0, "stream": True}),
    ("POST", "/v1/responses", {"input": ONCE, "previous_response_id": "resp_1"}),
    ("POST", "/api/chat", {"model": "storyteller", "messages": CHAT, "stream": False, **OPTIONS}),
    ("POST", "/api/chat", {"model": "storyteller", "messages": CHAT, **OPTIONS}),
    ("POST", "/api/chat", {"model": "storyteller"}),
    ("POST", "/api/generate", {"model": "storyteller", "prompt": ONCE, "stream": False, **OPTIONS}),
    ("POST", "/api/generate", {"model": "storyteller", "prompt": ONCE, **OPTIONS}),
    ("POST", "/api/show", {"model": "storyteller"}),
    ("POST", "/api/show", {"model": "nosuch"}),
    ("POST", "/api/pull", {"model": "nosuch"}),
    ("POST", "/completion", {"prompt": ONCE, "n_predict": 8, "temperature": 0}),
    ("POST", "/completion", {"prompt": ONCE, "n_predict": 8, "temperature": 0, "stream": True}),
    ("POST", "/completion", {"prompt": ONCE, "n_predict": 0}),
    ("POST", "/infill", {"input_prefix": ONCE, "input_suffix": "man", "n_predict": 4, "temperature": 0}),
    ("POST", "/tokenize", {"content": ONCE, "add_special": True}),
    ("POST", "/detokenize", {"tokens": [454, 1261]}),
    ("POST", "/apply-template", {"messages": CHAT}),
    ("POST", "/v1/events", {"job": EVENTS}),
    ("POST", "/v1/events", {"job": {}}),
]  # fmt: skip
RUN_ERRORS = """--temp -1; --temp nan; --temp warm; --temp=; --temperature -5; --top-p 0; --min-p 2; --top-k -3
--top-k 1.5; --repeat-penalty 0; --penalty-last-n -2; --logit-bias x; --logit-bias 5=1e9; --seed -1; -k -1; -k some
-n 0; -qn0; -n abc; --predict=0; --max-tokens 0; -n -1; --ctx 0; --ctx 1; --threads 0; --gpu some; --gpu; --kv f64
--stop ''; --timeout 0; --timeout 1e9; --cache-disk lots; --logprobs 999; --max-stdin -1
--method draft-modle; --tree bush; --tree static:0; --length long; --verify bloc
--tree static:3,2 --verify token; --method plain --tree static:3,2; --draft none --method draft-model
--reproducible --tree static:2,2; --reproducible --verify block
--reproducible --approximate --verify typical; -o colour; --method draft-model -o colour=red
--method draft-model -o min_match=2; -o x=1; -o min_mach=1; --regex ''; --regex '[a'; --rpc here
--lora a.gguf:5000; --lora :0.5; --draft ''; -m ''; -m a.gguf+; -m nosuch; -m storytelller; -m /no/such.gguf
-m hf:a/b --offline; -d nosuch; -P nosuch; --session nosuch1; --session 999; --json --events; --raw -s x
--template-arg effort; --template-arg messages=x; --think maybe; --dry-base 0.5; --xtc-probability 1.5
--bogus; --color maybe; --verifier http://; --verifier ws://127.0.0.1:9 --verifier-key-file /no/such
-f /no/such; -s @/no/such; --grammar @/no/such; --schema '{'; --schema '{}' --regex a
--grammar 'root ::= "a'; --choices ''; --log-file /no/such/log; --verify typical
--temp inf; --top-p 1.5; --min-p -0.1; --typical-p nan; --presence-penalty inf; --frequency-penalty -1e9
--draft-temp -1; --logit-bias 1=nan; --logit-bias -1=1; --seed 18446744073709551616; -n0; -qk-1; -qm ''; -k 2000000
--ctx 2147483648; --timeout nan; --max-stdin inf; --max-stdin nan; -o min_match=1; --logprobs x; --lora a.gguf:1e9
--logprobs 2 --top-k 1 --json --temp -1; --events --temp -1; --server http://127.0.0.1:9"""
ERRORS = """rum hi; runn; chat --bogus; serve --port 99999; serve --port x; serve nosuch; serve --api-key-file /no/such
serve --ssl-certfile /no/such; serve --models nosuch; serve --queue -1; serve --cors x; bench nosuch
bench storyteller --suite nosuch; bench storyteller --methods nosuch; bench storyteller --baseline /no/such
bench storyteller --repeat 0; bench storyteller --json /no/such/x; race nosuch hi
race storyteller hi --methods nosuch; rank storyteller hi; rank storyteller hi --items a; verify nosuch
verify storyteller --seeds 0; show nosuch; show; plan nosuch; plan storyteller --ctx 0
plan storyteller --gpu some; demo -m storyteller; ls --model x
logs show nosuch1; logs show 999; logs show; logs rm; logs rm -y 999
logs export -o /no/such/x; logs search; logs undo 999; pairs show nosuch; pairs rm nosuch
pairs rm storyteller; pairs add x; pairs add a/b storyteller; pairs explain nosuch; heads show nosuch
heads rm nosuch; stop nosuch; pull nosuch; pull storyteller; pull; rm nosuch; rm; config get nosuch
config get temp; config set temp warm; config set temp; config set nosuch 1; config unset nosuch
config unset temp; config set temp 9999; config set method draft-modle; config preset nosuch
config unset presets.nosuch; config preset save x; config preset save a/b --temp 0; explain nosuch; explain
explain acceptance; explain accptance; methods nosuch; completions fishy; doctor nosuch; calibrate nosuch
--nosuch; --version x; run -m storyteller -m; run --temp; run hi --template nosuch; logs export 999
chat --plain --session 999; ls nosuch; ps x"""

# Habits of ollama, llama.cpp and llm, and words that mean something else here.
HABITS = """run llama3.2:1b why is the sky blue; run qwen2.5:7b; run gemma3 hi; run mistral 'why is the sky blue'
run storyteler 'Once upon a time'; run storyteler Hi; run gpt-oss:20b Hi
run -c 4096 hello; run -c 128 hello; run -s 42 hello; run -d 16 hello; run -n -1 hello
run -5 plus 3; run '- an item'; run '-no, I said'; run --verbos hello
run -m storyteller --what is it; run -p one two; run --top_p 0.9 hi; chat -p hi
bench -p hi; race storyteller hi -c 4096; race -m storyteller hi; rank -m storyteller hi; run --cid hi; version extra
version --json; stop storyteller; server; create x; storyteller; explian; -m tales hi; -m storyteller
-p hi; --temp=0 a; -ctv; -x; run -f; chat --session; logs list -n; run --nosuch hi; run --tre hi
chat storyteller tell me; run --ctx abc hi; run -n abc hi; serve --port abc; run --timeout abc hi; logs list -n x
serve --port 0x; run --color no hi; run --schema 'name, age int, name' hi"""


def cases(table: str, before: str = "") -> list[str]:
    return [before + case.strip() for line in table.splitlines() for case in line.split("; ")]


class Program:
    """The program of this folder in a home of its own, run in forks."""

    def __init__(self, home: Path) -> None:
        ours = ("LOCALSPEC_", "NO_COLOR", "ACCESSIBLE", "FAKE_", "XDG_", "OLLAMA", "HF_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        homes = {"HOME": str(home), "LOCALSPEC_HOME": str(home / "localspec"), "HF_HUB_OFFLINE": "1"}
        self.env = {**env, **homes, "COLUMNS": "80", "TERM": "dumb", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT),
                    "CUDA_VISIBLE_DEVICES": "", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
        self.home = home
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", FORKS], env=self.env, cwd=ROOT, **pipes)

    def run(self, args: list[str], stdin: str = "") -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([args, stdin]) + "\n")
        self.process.stdin.flush()
        code, out, err = json.loads(self.process.stdout.readline())
        return code, self.masked(out), self.masked(err)

    def masked(self, text: str) -> str:
        text = text.replace(str(self.home), "<home>").replace(str(ROOT), "<root>")
        text = re.sub(r"\b\d+(\.\d+)? (tok/s|ms|s|MB|GB|MiB|GiB|kB)\b", r"# \2", text)
        return re.sub(r"0\.\d+\.\d+(-dev|\.dev\d+)?", "<version>", text)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(TIMEOUT)


def plain(value: Any) -> Any:
    """Return JSON without what changes from run to run; numbers have three digits."""
    if isinstance(value, dict):
        kept = {key for key, item in value.items() if item is None or (key == "id" and isinstance(item, int))}
        return {k: item if k in kept else "~" if MASKED.match(k) else plain(item) for k, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def lines(text: str) -> Iterator[str]:
    """Yield text, each object of JSON in it masked: one line a key of the whole, one line an event."""
    whole = text.strip()
    for line in whole.splitlines():
        head, mark, body = line.partition("data: ") if line.startswith("data: ") else ("", "", line)
        try:
            value = json.loads(body)
        except ValueError:
            yield line
            continue
        if not isinstance(value, dict):
            yield line
        elif value.get("type") == "load":
            continue  # as many as the file has parts
        elif len(whole.splitlines()) > 1:
            yield head + mark + json.dumps(plain(value))
        else:
            yield from (f"{key}: {json.dumps(item)}" for key, item in plain(value).items())


def shown(args: str, done: tuple[int, str, str]) -> Iterator[str]:
    code, out, err = done
    yield f"$ localspec {args}"
    yield from lines(out)
    yield from (f"! {line}" for line in err.splitlines())
    yield f"= {code}"
    yield ""


def runs(program: Program) -> Iterator[str]:
    """Answers: the text, the JSON, the events."""
    for name, args in RUNS.items():
        yield from shown(args[:200], program.run(shlex.split(args), GIVEN.get(name, "")))


def errors(program: Program) -> Iterator[str]:
    """Wrong inputs: the line, and the exit code."""
    for case in [*cases(ERRORS), *cases(HABITS), *cases(RUN_ERRORS, "run hi ")]:
        code, out, err = program.run(shlex.split(case))
        yield from shown(case, (code, out[:400], err[:1000]))


def helps(program: Program) -> Iterator[str]:
    """`--help` of each command."""
    todo = [""]
    while todo:
        command = todo.pop()
        done = program.run([*command.split(), "--help"])
        yield from shown(f"{command} --help".strip(), (done[0], done[1], done[2]))
        listed = done[1].partition("\nCommands:\n")[2]
        todo += [f"{command} {name}".strip() for name in re.findall(r"^  ([a-z-]+) ", listed, re.MULTILINE)][::-1]


def fields(_program: Program) -> Iterator[str]:
    """The fields of docs/json.md with their types."""
    for line in (ROOT / "docs" / "json.md").read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\| `(\w+)` \| ([^|]*) \|", line):
            yield f"  {found[1]}: {found[2]}"
        elif line.startswith("#"):
            yield line


@contextmanager
def serving(program: Program) -> Iterator[int]:
    """Start the server, whose passes are the same each time; yield its port."""
    args = "serve storyteller --port 0 --json --method draft-model -k 3 --seed 1 --parallel 1"
    command = [sys.executable, "-m", "localspec", *args.split()]
    server = subprocess.Popen(command, env=program.env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        yield int(json.loads(server.stdout.readline())["url"].rpartition(":")[2])
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(TIMEOUT)


def http_apis(program: Program) -> Iterator[str]:
    """Each API of the server: status, kind of content, content."""
    with serving(program) as port:
        for method, path, body in REQUESTS:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
            raw = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
            connection.request(method, path, raw)
            response = connection.getresponse()
            content = program.masked(response.read().decode())
            connection.close()
            yield f"> {method} {path} {'' if raw is None else raw.decode()}".rstrip()
            yield f"= {response.status} {response.getheader('content-type')}"
            yield from lines(content)
            yield ""


RECORDS: dict[str, Callable[[Program], Iterator[str]]] = {
    "run": runs, "http": http_apis, "errors": errors, "help": helps, "fields": fields,
}  # fmt: skip


def recorded(name: str) -> str:
    """Return what the program gives now."""
    with tempfile.TemporaryDirectory(prefix="golden-") as home:
        program = Program(Path(home))
        try:
            return "\n".join(RECORDS[name](program)) + "\n"
        finally:
            program.close()


def main() -> None:
    names = sys.argv[1:] or list(RECORDS)
    with ThreadPoolExecutor(2) as pool:
        for name, text in zip(names, pool.map(recorded, names), strict=True):
            (HERE / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
