"""The command: findings about the installation, as lines or as one object.

The checks, one function each: a fact, whether it is in order, and the command to type if it is not.
"""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from localspec import __version__
from localspec.cli.console import Console, is_dumb, is_terminal, write_out
from localspec.cli.doctor.finding import Finding
from localspec.cli.doctor.gpus import INTEGRATED, Gpu, backend_for, gpus, missing_compiler, rebuild_line, unused
from localspec.cli.options import ReportOptions, declared_option, picked, report_options
from localspec.cli.output import write_json
from localspec.cli.params import Command, json_option
from localspec.cli.settings import rpc_servers
from localspec.cli.settings_table import check_file
from localspec.cli.version import binding_version
from localspec.errors import LocalspecError, UsageError
from localspec.models.hub.cache import Cache
from localspec.models.plan import calibration
from localspec.settings.config_file import config_file, read_configuration
from localspec.settings.folders import cache_folder
from localspec.settings.lone_jobs import MachineFacts
from localspec.settings.removed import check_removed
from localspec.settings.request import LoadSettings
from localspec.settings.sizes import size
from localspec.worker.lone_jobs import Unanswered, ask

LITTLE_DISK = 10e9  # bytes: about one pair of models
CPU_FEATURES = ("AVX", "AVX2", "AVX512", "AMX_INT8", "NEON", "SVE", "F16C", "FMA")
X86 = (("avx2", "AVX2"), ("avx512f", "AVX512"), ("amx_int8", "AMX_INT8"))  # what Linux and llama.cpp call one thing
NO_ENGINE, NO_ANSWER = 3, 4  # exit codes, as everywhere


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="")
@declared_option(LoadSettings, "rpc")
@json_option
@report_options
@click.pass_obj
def doctor(console: Console, /, words: tuple[str, ...], rpc: str | None, as_json: bool, **values: Any) -> int:
    """Check this installation: llama.cpp's build, GPUs, RPC servers, memory, disk and terminal.

    Each problem comes with the command to type. The exit code is 0 unless something is broken: 2 for config.toml, 3 if
    llama.cpp does not load, 4 if a server does not answer.

    Whether a draft pays on a pair: localspec plan PAIR --measure.
    """
    picked(ReportOptions, values).apply(console)
    if words:
        check_removed("doctor PAIR")
    findings = []
    for finding in examine(rpc_servers(rpc)):
        findings.append(finding)
        if not as_json:
            write_out(finding.line(console, sys.stdout))
    code = next((finding.code for finding in findings if finding.code), 0)
    if as_json:
        write_json({"ok": not code, "checks": [finding.to_wire() for finding in findings]})
    return code


def examine(servers: tuple[str, ...]) -> Iterator[Finding]:
    yield _versions()
    yield _settings()
    facts: dict[str, Any] = {}
    try:
        facts = ask(MachineFacts())
    except Unanswered as error:
        yield _no_engine(error.reason)
    except LocalspecError as error:
        yield _no_engine(error.message)
    if facts:
        yield _engine(facts)
        yield from _devices(facts, gpus())
        yield _memory(facts)
        yield from _servers(facts, servers)
        yield _figures(facts)
    yield from _disk()
    yield _terminal()


def _settings() -> Finding:
    file = config_file()
    facts = {"path": str(file)}
    try:
        check_file()
    except UsageError as error:
        return Finding("settings", "broken", error.message, error.hint, error.exit_code, facts)
    n = len(read_configuration())
    return Finding("settings", "ok", f"{n} in {file}" if n else f"none in {file}", facts=facts)


def _versions() -> Finding:
    binding = binding_version()
    facts = {
        "localspec": __version__,
        "python": platform.python_version(),
        "llama_cpp_python": binding,
        "system": f"{platform.system()} {platform.machine()}",
    }
    text = f"localspec {__version__}, Python {facts['python']}, llama-cpp-python {binding}, {facts['system']}"
    return Finding("versions", "ok", text, facts=facts)


def _no_engine(said: str) -> Finding:
    causes = {
        "SIGILL": "it was built for another processor",
        "status -4": "it was built for another processor",
        "libcuda": "it was built for CUDA, and the CUDA libraries are not found",
        "libcudart": "it was built for CUDA, and the CUDA libraries are not found",
        "ld-musl": "it was built for another C library (musl)",
        "No module named": "it is not installed",
    }
    cause = next((meaning for sign, meaning in causes.items() if sign in said), "")
    text = f"llama.cpp does not load{f', {cause}' if cause else ''}: {said}"
    return Finding("engine", "broken", text, rebuild_line("native"), NO_ENGINE)


def _engine(facts: Mapping[str, Any]) -> Finding:
    words = str(facts["system_info"]).replace("|", " ").split()
    on = [name for name, *rest in zip(words, words[1:], words[2:], strict=False) if rest == ["=", "1"]]
    features = [name for name in CPU_FEATURES if name in on]
    built = "RPC" if facts["rpc"] else "no RPC"
    names = ("llama_cpp", "compiler", "rpc", "gpu_offload")
    details = {"features": on, **{name: facts[name] for name in names}}
    by = f" by {facts['compiler']}" if facts["compiler"] else ""
    text = (
        f"llama.cpp {facts['llama_cpp']}, built{by} with {' '.join(features) or 'no vector units known here'}, {built}"
    )
    lacking = [feature for flag, feature in X86 if feature not in on and flag in _processor()]
    if lacking:
        text += f"; the build does not use {' and '.join(lacking)} of this processor"
        return Finding("engine", "note", text, rebuild_line("native"), facts=details)
    return Finding("engine", "ok", text, facts=details)


def _processor() -> list[str]:
    try:
        flags = re.search(r"^flags\b.*", Path("/proc/cpuinfo").read_text("ascii", "replace"), re.MULTILINE)
    except OSError:
        return []
    return flags[0].split() if flags else []


def _devices(facts: Mapping[str, Any], seen: tuple[Gpu, ...]) -> Iterator[Finding]:
    usable = [f"{gpu['name']} {gpu['description']}" for gpu in facts["all"] if gpu["is_gpu"] and not gpu["is_remote"]]
    listed = ", ".join(f"{gpu['name']} ({gpu['description']}, {size(gpu['free'])} free)" for gpu in facts["all"])
    details = {"devices": facts["all"], "gpus": [{"maker": gpu.maker, "name": gpu.name} for gpu in seen]}
    idle = unused(seen, usable)
    if not idle:
        none = "" if usable else "; no GPU is seen"
        yield Finding("devices", "ok", f"{listed}{none}", facts=details)
        return
    text = f"{listed}; this build cannot use {', '.join(gpu.name for gpu in idle)}"
    worth = [gpu for gpu in idle if not usable or gpu.maker not in INTEGRATED]
    if not worth:
        yield Finding("devices", "ok", text, facts=details)
    elif any(name.startswith("Vulkan") for name in usable):
        text += ": Vulkan sees what has a driver"
        yield Finding("devices", "note", text, f"the driver of {worth[0].name}", facts=details)
    else:
        backend = backend_for(worth[0])
        lacks = missing_compiler(backend)
        text += f" ({lacks})" if lacks else ""
        yield Finding("devices", "note", text, rebuild_line(backend), facts={**details, "backend": backend})


def _memory(facts: Mapping[str, Any]) -> Finding:
    ram = facts["ram"]
    text = f"{'unknown' if ram is None else size(ram)} of main memory available, {facts['cores']} physical cores"
    return Finding("memory", "ok", text, facts={"available": ram, "cores": facts["cores"]})


def _servers(facts: Mapping[str, Any], servers: tuple[str, ...]) -> Iterator[Finding]:
    """Yield whether each RPC server answers; each is asked in a process of its own, which a bad one may end."""
    for endpoint in servers:
        try:
            remote_facts = ask(MachineFacts((endpoint,)), timeout=20)
        except Unanswered as error:
            text = f"{endpoint} accepts connections and does not answer: {error.reason}"
            yield Finding("rpc", "broken", text, "localspec rpc-serve again, of the same version, there", NO_ANSWER)
        except LocalspecError as error:
            yield Finding("rpc", "broken", error.message, error.hint, error.exit_code, {"endpoint": endpoint})
        else:
            theirs = [device for device in remote_facts["all"] if device["is_remote"]]
            listed = ", ".join(f"{device['name']}, {size(device['free'])} free" for device in theirs)
            yield Finding("rpc", "ok", f"{endpoint} answers: {listed}", facts={"endpoint": endpoint, "devices": theirs})


def _figures(facts: Mapping[str, Any]) -> Finding:
    calibrated = calibration.load(cache_folder("machine"))
    if calibrated is None:
        return Finding("figures", "note", "bandwidths are not measured", "localspec calibrate --machine")
    known = [each["name"] for each in facts["all"] if calibrated.rates(each["name"], each["description"]) is not None]
    text = f"bandwidths of {', '.join(known) or 'other devices'} measured {calibrated.measured}"
    details = {"measured": calibrated.measured, "devices": known}
    state, hint = ("ok", "") if known else ("note", "localspec calibrate --machine")
    return Finding("figures", state, text, hint, facts=details)


def _disk() -> Iterator[Finding]:
    folders = {"cache": cache_folder("")}
    try:
        folders = {"models": Cache().root, **folders}
    except UsageError as error:
        yield Finding("models", "note", error.message, error.hint)
    for name, folder in folders.items():
        there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
        try:
            free = shutil.disk_usage(there).free
            with tempfile.TemporaryFile(dir=there):
                pass
        except OSError as error:
            facts: dict[str, Any] = {"path": str(folder)}
            text = f"{folder} cannot be written: {error.strerror or error}"
            hint = "HF_HUB_CACHE=FOLDER" if name == "models" else "LOCALSPEC_HOME=FOLDER"
            yield Finding(name, "note", text, hint, facts=facts)
            continue
        is_little = free < LITTLE_DISK
        facts = {"path": str(folder), "free": free}
        yield Finding(name, "note" if is_little else "ok", f"{folder}, {size(free)} free", facts=facts)


def _terminal() -> Finding:
    facts = {
        "stdout": is_terminal(sys.stdout),
        "stderr": is_terminal(sys.stderr),
        "TERM": os.environ.get("TERM", ""),
        "columns": shutil.get_terminal_size().columns,
        "encoding": (getattr(sys.stdout, "encoding", None) or "unknown").lower(),
    }
    where = f"a terminal of {facts['columns']} columns" if facts["stdout"] else "no terminal"
    text = f"{where}, TERM={facts['TERM'] or 'not set'}, {facts['encoding']}"
    if facts["stdout"] and (is_dumb() or "utf" not in str(facts["encoding"])):
        hint = "a UTF-8 locale, for instance LC_ALL=C.UTF-8, and a TERM such as xterm-256color"
        return Finding("terminal", "note", f"{text}: marks and live lines are left out or replaced", hint, facts=facts)
    return Finding("terminal", "ok", text, facts=facts)
