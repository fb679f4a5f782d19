# Sourced by the scripts beside it: makes .venv on first use and brings it up to date when pyproject.toml changes.
#
#   prepare [EXTRA]   leaves the environment's python in $python; EXTRA is dev or train
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

ZIG=0.17.1 # clang, with its own C library and headers: a wheel of 100 MB, which is gone again after the build
compiler=  # what --compiler says
cpuinfo=/proc/cpuinfo
tick=2     # seconds between two looks at the build
flags=     # what --with adds to llama.cpp's build

has_compiler() {
    local name
    for name in ${CXX:-} c++ g++ clang++; do
        command -v "$name" >/dev/null && return
    done
    return 1
}

# Print the compiler to take, and why. zig is taken where its build was measured to be faster than GCC's.
best_compiler() {
    if [ -n "$compiler" ]; then
        echo "$compiler --compiler says so"
    elif [ -n "${CXX:-}" ]; then
        echo "system CXX names it"
    elif [[ $flags == *CUDA* ]]; then
        echo "system nvcc needs it"
    elif ! has_compiler; then
        echo "zig there is no C++ compiler here"
    elif [ "$(uname -sm)" = "Linux x86_64" ] && grep -qs amx_tile $cpuinfo; then
        echo "zig its build is the fastest on processors with AMX"
    else
        echo "system zig's build was not measured to be faster on this processor"
    fi
}

# Print a name for builds of one compiler, for one processor, with the same flags.
build_key() {
    local version=$ZIG
    [ "$1" = zig ] || version=$({ "${CXX:-c++}" --version || true; } 2>/dev/null | head -n 1)
    {
        echo "$version $flags ${CMAKE_ARGS:-} ${CFLAGS:-} ${CXXFLAGS:-}"
        cat "$root/scripts/llama_build.cmake" "$root/scripts/gcc_amx.h"
        uname -m
        grep -m1 -s ^flags $cpuinfo || true
    } | cksum | sed "s/ .*//; s/^/$1-/"
}

# Show how far the build is: llama.cpp's own "[done/all]" lines while it compiles, a dot of news now and then otherwise.
watch_build() {
    local log=$1 pid=$2 began=$SECONDS line last=
    while kill -0 "$pid" 2>/dev/null; do
        sleep "$tick"
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

# pip install with the given arguments, its progress shown; the log goes to the end of the file.
watched_pip() {
    local log=$1 pid
    shift
    "$python" -m pip install --disable-pip-version-check -v "$@" >>"$log" 2>&1 &
    pid=$!
    trap 'kill $pid 2>/dev/null; exit 130' INT
    watch_build "$log" "$pid"
    trap - INT
    wait "$pid"
}

failed() {
    tail -n 15 "$1" >&2
    fail "The installation failed; the whole log is in .venv/${1##*/}."
}

# Compile llama.cpp with one compiler. Wheels lie in a cache of this compiler, processor and flags: pip's own cache knows
# none of them. What localspec never loads is not compiled (the tools for images and sound, llama.cpp's common library):
# it takes about half of the time then.
compile_with() {
    local log=$1 key=$2 cache status=0
    cache=$("$python" -m pip cache dir 2>/dev/null) && cache="--cache-dir=$cache/localspec/$key" || cache=--no-cache-dir
    (
        if [[ $key == zig-* ]]; then
            "$python" -m pip install --disable-pip-version-check "ziglang==$ZIG" >>"$log" 2>&1 || exit
            export PYTHON=$python CC=$root/scripts/zig-cc CXX=$root/scripts/zig-c++
            export ZIG_LOCAL_CACHE_DIR=$venv/zig ZIG_GLOBAL_CACHE_DIR=$venv/zig
            CMAKE_ARGS="${CMAKE_ARGS:+$CMAKE_ARGS }-DCMAKE_AR=\"$root/scripts/zig-ar\" -DCMAKE_RANLIB=\"$root/scripts/zig-ranlib\""
        fi
        export CMAKE_ARGS="${CMAKE_ARGS:+$CMAKE_ARGS }-DLLAVA_BUILD=OFF -DCMAKE_PROJECT_llama.cpp_INCLUDE=\"$root/scripts/llama_build.cmake\"${flags:+ $flags}"
        watched_pip "$log" "$cache" --force-reinstall --no-deps ${flags:+--no-binary llama-cpp-python} "$(binding)"
    ) || status=$?
    if [[ $key == zig-* ]]; then
        "$python" -m pip uninstall -y ziglang >/dev/null 2>&1 || true
        rm -rf "$venv/zig"
    fi
    [ $status != 130 ] || exit 130 # Ctrl-C
    [ $status = 0 ] && echo "$key" >"$venv/.built"
}

# The requirement of pyproject.toml.
binding() { sed -n 's/^ *"\(llama-cpp-python[^"]*\)".*/\1/p' "$root/pyproject.toml"; }

# End where Vulkan's headers are older than llama.cpp's code for it: the compiler finds that out after a quarter of an hour.
check_vulkan() {
    local header=${VULKAN_SDK:-/usr}/include/vulkan/vulkan_core.h
    [ ! -e "$header" ] || grep -q VK_EXT_layer_settings "$header" || fail "--with vulkan needs Vulkan's headers of 1.3.272" \
        "or newer, and $header is older: set VULKAN_SDK=FOLDER to the folder of a newer Vulkan SDK."
}

# Compile llama.cpp with the best compiler, unless it was, and with the other one where that fails.
build() {
    local log=$venv/build.log first other=zig why key
    read -r first why < <(best_compiler)
    key=$(build_key "$first")
    if [ "$(cat "$venv/.built" 2>/dev/null)" = "$key" ] && "$python" -c 'import llama_cpp' 2>/dev/null; then return; fi
    [[ $flags != *VULKAN* ]] || check_vulkan
    echo "Compiling llama.cpp with ${flags:+$flags and }$(compiler_name "$first"): $why (--compiler zig|system decides)." >&2
    echo "It takes about 5 minutes on 2 cores, less on more, and happens once. Details: .venv/${log##*/}" >&2
    : >"$log"
    compile_with "$log" "$key" && return
    if [ "$first" = zig ]; then
        has_compiler && other=system || other=
    fi
    [[ -n $other && -z $compiler && $flags != *CUDA* ]] || failed "$log"
    echo "That failed: $(grep -aiE -m 1 '\berror:' "$log" || tail -n 1 "$log")" >&2
    echo "Compiling it with $(compiler_name $other)." >&2
    compile_with "$log" "$(build_key $other)" || failed "$log"
}

compiler_name() { [ "$1" = zig ] && echo "zig $ZIG" || echo "the system's compiler"; }

install() {
    local log=$venv/install.log
    # Without an index pip takes nothing but what is there.
    if ! "$python" -m pip install -q --no-index --no-deps "$(binding)" >/dev/null 2>&1; then
        echo "First run: installing into .venv." >&2
        build
    fi
    : >"$log"
    watched_pip "$log" -e "$1" || failed "$log"
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

known_compiler() {
    case $1 in
        system | zig) echo "$1" ;;
        *) fail "--compiler takes system or zig, not '$1'." ;;
    esac
}

# Make or complete .venv. What --with and --compiler ask for is compiled if it was not.
prepare() {
    local extra=${1:-} what=$root stamp
    stamp=$venv/.ready${extra:+-$extra}
    [ -n "$extra" ] && what="$root[$extra]"
    if [ ! -e "$stamp" ] || [ "$root/pyproject.toml" -nt "$stamp" ]; then
        [ -x "$python" ] || "$(find_python)" -m venv "$venv" || fail "Could not make .venv; on Debian: apt install python3-venv."
        install "$what"
        touch "$stamp"
    fi
    [ -z "$compiler$flags" ] || build
}
