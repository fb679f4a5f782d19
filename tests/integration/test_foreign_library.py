"""LLAMA_CPP_LIB_PATH names a library of another version: one line, no crash. The library is a real one, but for what is
compiled here.
"""

import ctypes
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from localspec.backends import structures
from localspec.backends.lib import api
from localspec.errors import IncompatibleError
from tests.cli.harness import localspec

REAL = Path(str(files("llama_cpp"))) / "lib"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
pytestmark = pytest.mark.skipif(sys.platform != "linux" or COMPILER is None, reason="needs Linux and a C compiler")
# A field more at some place, and what lies behind it moved.
CODE = """
#include <string.h>
struct params {{ char bytes[{size} + {more}]; }};
struct before {{ char bytes[{size}]; }};
extern void *dlsym(void *, const char *);
struct params llama_{name}_default_params(void) {{
    struct before known = ((struct before (*)(void)) dlsym((void *) -1l, "llama_{name}_default_params"))();
    struct params found;
    memset(&found, 0, sizeof found);
    memcpy(found.bytes, known.bytes, {at});
    memcpy(found.bytes + {at} + {more}, known.bytes + {at}, {size} - {at});
    return found;
}}
"""


def compiled(folder: Path, code: str) -> Path:
    """Compile a libllama that lacks nothing of the real one; return its folder."""
    assert COMPILER is not None
    source = folder / "other.c"
    source.write_text(code)
    linked = ["-Wl,--no-as-needed", f"-L{REAL}", "-l:libllama.so", f"-Wl,-rpath,{REAL}"]
    subprocess.run([COMPILER, "-shared", "-fPIC", str(source), "-o", str(folder / "libllama.so"), *linked], check=True)
    return folder


@pytest.mark.parametrize("name", ["context", "model"])
@pytest.mark.parametrize(("where", "more"), [("first", 8), ("middle", 8), ("last", 8), ("none", 0)])
def test_another_layout_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str, more: int
) -> None:
    size = ctypes.sizeof(getattr(api, f"llama_{name}_params"))
    at = {"first": 0, "middle": size // 2 // 8 * 8, "last": size, "none": 0}[where]
    code = CODE.format(name=name, size=size, more=more, at=at)
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(compiled(tmp_path, code)))
    done = localspec("run", "storyteller", "-q", "-n", "2", "Once")
    if not more:
        assert done.returncode == 0
        return
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == IncompatibleError.exit_code
    assert f"it lays llama_{name}_params out otherwise" in line
    assert "unset LLAMA_CPP_LIB_PATH" in line


def test_a_library_without_a_function_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-shared", "-x", "c", "-", "-o", str(tmp_path / "libllama.so")], input=b"int nothing;", check=True
    )
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    done = localspec("run", "storyteller", "-q", "-n", "2", "Once")
    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == IncompatibleError.exit_code
    assert "llama.cpp is of another version than llama-cpp-python" in line
    assert "of another version" in localspec("--version").stdout.decode()
    assert "of another version" in localspec("doctor").stdout.decode()


@pytest.mark.parametrize("has_hidden_pointer", [False, structures.HAS_HIDDEN_POINTER])
def test_the_library_of_the_binding_fits(monkeypatch: pytest.MonkeyPatch, has_hidden_pointer: bool) -> None:
    monkeypatch.setattr(structures, "HAS_HIDDEN_POINTER", has_hidden_pointer)
    assert structures.misfit(api) == ""
