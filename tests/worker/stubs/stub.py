"""A child that speaks the worker's protocol and misbehaves on purpose: `stub.py MODE COMMANDS CONTROL EVENTS ...`."""

import contextlib
import json
import os
import signal
import sys
import time

MODE = sys.argv[1]
COMMANDS, CONTROL, EVENTS = map(int, sys.argv[2:5])
highest = 0  # the last request that was cancelled
PIECES = ("Once", " upon", " a", " time")


def say(seq: int, kind: str, **fields: object) -> None:
    os.write(EVENTS, json.dumps({"seq": seq, "type": kind, **fields}).encode() + b"\n")


def loaded(seq: int) -> None:
    target: dict[str, object] = {"path": "t.gguf", "arch": "llama", "quant": "Q8_0", "devices": ["CPU"]}
    target |= dict.fromkeys(("bytes", "n_params", "n_vocab", "n_layer", "kv_bytes"), 1)
    say(seq, "loaded", name="x", target=target, draft=None, n_ctx=8, threads=1, load_ms=1.0, versions={"a": "1"})


def committed(seq: int, index: int, text: str) -> None:
    piece = {"id": index, "text": text, "source": "plain", "p": None}
    ms = {"draft": 0.0, "verify": 1.0, "sample": 0.0, "other": 0.0}
    counts = {"index": index, "position": index, "k": 0, "depth": 0, "n_accepted": 0}
    say(seq, "committed", **counts, out=[piece], text=text, ms=ms, is_probe=False, why="", drafted=[])


def finished(seq: int, reason: str = "stop") -> None:
    saves = 10**9 if MODE.startswith("writes:") else 0
    say(seq, "finished", reason=reason, tail="", wall_ms=1.0, ttft_ms=1.0, peak_memory=1, saves=saves)


def die(how: str) -> None:
    """End in the way that `how` names; what follows a colon is logged before, | between its lines."""
    how, _, said = how.partition(":")
    print(said.replace("|", "\n"), file=sys.stderr, flush=True)
    print(f"about to end by {how}\x1b[31m", file=sys.stderr, flush=True)
    if how.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, how))
        time.sleep(60)
    if how == "garbage":
        os.write(EVENTS, b"llama_model_load: error\n")
    elif how == "number":
        os.write(EVENTS, b"17\n")
    elif how == "half":
        os.write(EVENTS, b'{"seq": 1, "type": "loading"}\n')
    elif how == "partial":
        os.write(EVENTS, b'{"seq": 1, "type": "load')
        os._exit(3)
    elif how == "malformed":
        os.write(EVENTS, b'{"seq": 1, "type": "committed", "ms": 3, "out": 4, "drafted": 5}\n')
    elif how == "failure":
        os.write(EVENTS, b'{"seq": 1, "type": "failed", "error": 5}\n')
    elif how == "environment":
        print(os.environ["GGML_NO_BACKTRACE"], os.environ["GLIBC_TUNABLES"], file=sys.stderr, flush=True)
        print("spins", os.environ.get("GOMP_SPINCOUNT"), file=sys.stderr, flush=True)
        os._exit(1)
    elif how == "endless":
        while True:
            os.write(EVENTS, b"x" * 65536)
    else:
        os._exit(int(how.removeprefix("exit")))
    time.sleep(60)


def cancelled(seq: int) -> bool:
    """Return whether `control` has asked for the end of request `seq` by now."""
    global highest
    os.set_blocking(CONTROL, False)
    with contextlib.suppress(BlockingIOError):
        highest = max([highest, *map(int, os.read(CONTROL, 4096).split())])
    return highest >= seq


def load(seq: int) -> None:
    where, _, how = MODE.partition(":")
    say(seq, "loading", what="target", fraction=0.5, something_new=1)
    if where == "load":
        die(how)
    if MODE == "hang":
        time.sleep(60)
    if MODE == "failed":
        error = {"code": 5, "kind": "integrity", "message": "t.gguf is not GGUF", "hint": "look", "detail": {"a": 1}}
        say(seq, "failed", error=error)
    elif MODE == "internal":
        print("Traceback: Ouch", file=sys.stderr, flush=True)
        say(seq, "failed", error={"code": 1, "kind": "internal", "message": "Ouch", "hint": "", "detail": {}})
    else:
        loaded(seq)


def generate(seq: int, request: dict[str, object]) -> None:
    where, _, how = MODE.partition(":")
    say(seq, "started", method="plain", tree="chain", length="fixed", k=0, verify="block", seed=1, is_seeded=False,
        prompt_n=len(str(request["prompt"])))  # fmt: skip
    if where == "prefill":
        die(how)
    say(seq, "prefilled", prompt_n=3, cache_n=0, ms=1.0)
    say(seq, "from_the_future", anything=1)
    for index, text in enumerate(PIECES):
        if where == "generate" and index == 2:
            die(how)
        committed(seq, index, text)
    if MODE == "deaf":
        time.sleep(60)
    until = time.monotonic() + 60
    while MODE == "chatty" and time.monotonic() < until:
        committed(seq, 9, ".")
        time.sleep(0.005)
    if MODE == "slow":
        while not cancelled(seq):
            committed(seq, 9, ".")
            time.sleep(0.005)
        finished(seq, "interrupted")
    else:
        finished(seq)


def main() -> None:
    if MODE == "mute":
        time.sleep(60)
    if MODE.startswith("start:"):
        die(MODE.removeprefix("start:"))
    print("a stray print on standard output", flush=True)
    say(0, "ready", **({"version": "9.9"} if MODE == "version" else {}))
    for line in os.fdopen(COMMANDS, "rb"):
        command = json.loads(line)
        if command["command"] == "load":
            load(command["seq"])
        else:
            generate(command["seq"], command["request"])
    if MODE.startswith("writes:"):
        time.sleep(0.5)
        with open(MODE.removeprefix("writes:"), "x"):
            pass
    if MODE == "stubborn":
        time.sleep(60)


main()
