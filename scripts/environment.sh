# Sourced by the scripts beside it: makes .venv on first use and brings it up to date when pyproject.toml changes.
#
#   prepare [EXTRA]   leaves the environment's python in $python; EXTRA is dev, serve or train
#
# The first run compiles llama.cpp (pip builds llama-cpp-python from source, since there are no wheels on PyPI). pip
# keeps the wheel in its cache, so a second clone takes seconds.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python

fail() {
    echo "$*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
            command -v "$candidate"
            return
        fi
    done
    fail "localspec needs Python 3.11 or newer, and none is on the PATH. Install one, or set PYTHON=/path/to/python3."
}

has_compiler() {
    local compiler
    for compiler in ${CXX:-} c++ g++ clang++; do
        command -v "$compiler" >/dev/null && return
    done
    return 1
}

# Show how far the build is: llama.cpp's own "[done/all]" lines while it compiles, a dot of news now and then otherwise.
watch_build() {
    local log=$1 pid=$2 began=$SECONDS line last=
    while kill -0 "$pid" 2>/dev/null; do
        sleep 2
        line=$(grep -aoE '\[[0-9]+/[0-9]+\]' "$log" 2>/dev/null | tail -n 1 || true)
        if [ -t 2 ]; then
            printf '\r\033[K  %s %d:%02d' "${line:-preparing}" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) >&2
        elif [ "$line" != "$last" ] && [ $(((SECONDS - began) % 30)) -lt 2 ]; then
            echo "  ${line:-preparing} after $((SECONDS - began)) s" >&2
        fi
        last=$line
    done
    [ -t 2 ] && printf '\r\033[K' >&2 || true
}

# GCC before 11.5, 12.4 and 13.3 compiles AMX wrongly (GCC bug 114098), and llama.cpp then crashes at the first token.
flags_against_amx() {
    local version
    grep -qs amx_tile /proc/cpuinfo || return 0
    version=$("${CXX:-c++}" -dumpfullversion 2>/dev/null) || return 0
    case $version in
        [0-9].* | 10.* | 11.[0-4].* | 12.[0-3].* | 13.[0-2].*) echo "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" ;;
    esac
}

go_without_amx() {
    local flags
    flags=$(flags_against_amx)
    export CFLAGS="${CFLAGS:-} $flags" CXXFLAGS="${CXXFLAGS:-} $flags"
}

# pip install with the given arguments, its progress shown.
watched_pip() {
    local log=$1 pid
    shift
    "$python" -m pip install --disable-pip-version-check -v "$@" >"$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null; exit 130' INT
    watch_build "$log" "$pid"
    trap - INT
    wait "$pid" || { tail -n 15 "$log" >&2; fail "The installation failed; the whole log is in .venv/${log##*/}."; }
}

# What localspec never loads is not compiled: the tools for images and sound, llama.cpp's common library. It takes about
# half of the time then.
go_lean() {
    export CMAKE_ARGS="${CMAKE_ARGS:+$CMAKE_ARGS }-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=\"$root/scripts/llama_build.cmake\""
}

binding_version() { "$python" -c 'from importlib.metadata import version; print(version("llama-cpp-python"))'; }

install() {
    local what=$1 log=$venv/install.log
    go_without_amx
    go_lean
    if ! "$python" -c 'import llama_cpp' 2>/dev/null; then
        has_compiler || fail "localspec compiles llama.cpp and needs a C++ compiler: apt install build-essential, or xcode-select --install."
        echo "First run: installing into .venv. llama.cpp is compiled for this machine's processor, which takes about" >&2
        echo "5 minutes on 2 cores, less on more, and happens once. Details: .venv/install.log" >&2
    fi
    watched_pip "$log" -e "$what"
    # pip's cache may hold a llama.cpp that was compiled without these flags.
    if [ -n "$(flags_against_amx)" ] && ! "$python" -c 'import sys; from localspec.backends.build import is_amx_broken; sys.exit(is_amx_broken())'; then
        echo "llama.cpp crashes with AMX on this machine: compiling it without, once." >&2
        "$python" -m pip cache remove 'llama_cpp_python*' >/dev/null 2>&1 || true  # the next clone gets the good one
        watched_pip "$log" --force-reinstall --no-deps "llama-cpp-python==$(binding_version)"
    fi
}

# Options of llama.cpp's build that `--with` knows, by name.
cmake_flags() {
    local name flags=
    for name in ${1//,/ }; do
        case $name in
            rpc) flags+=" -DGGML_RPC=on" ;;
            cuda) flags+=" -DGGML_CUDA=on" ;;
            vulkan) flags+=" -DGGML_VULKAN=on" ;;
            *) fail "--with takes rpc, cuda and vulkan, alone or joined by commas, not '$name'." ;;
        esac
    done
    [ -n "$flags" ] || fail "--with takes rpc, cuda and vulkan, alone or joined by commas."
    echo "${flags# }"
}

# Compile llama.cpp anew with these options, unless it was. pip would take the wheel in its cache, whatever CMAKE_ARGS
# say.
rebuild() {
    local flags=$1 log=$venv/rebuild.log built=$venv/.with
    [ "$(cat "$built" 2>/dev/null)" != "$flags" ] || return 0
    echo "Compiling llama.cpp with $flags, which takes minutes and happens once. Details: .venv/rebuild.log" >&2
    go_without_amx
    go_lean
    export CMAKE_ARGS="$CMAKE_ARGS $flags"
    watched_pip "$log" --no-cache-dir --force-reinstall --no-deps --no-binary llama-cpp-python "llama-cpp-python==$(binding_version)"
    echo "$flags" >"$built"
}

prepare() {
    local extra=${1:-} what=$root stamp
    stamp=$venv/.ready${extra:+-$extra}
    [ -n "$extra" ] && what="$root[$extra]"
    if [ ! -e "$stamp" ] || [ "$root/pyproject.toml" -nt "$stamp" ]; then
        [ -x "$python" ] || "$(find_python)" -m venv "$venv" || fail "Could not make .venv; on Debian: apt install python3-venv."
        install "$what"
        touch "$stamp"
    fi
}
