#!/usr/bin/env bash
# ziglang 0.17.1 (PyPI; clang 22 as `zig cc` and `zig c++`), x86-64 Linux, as a compiler for CMake's Release builds:
# -O3 compiles with clang's -O2, debug information is written although no -g was given, and frame pointers stay.
#
# Guessed: `zig c++ -O3 -DNDEBUG` is clang's -O3, and an object has no debug information without -g.
# Seen, in the arguments that reach clang (-###) and in the objects:
#
#   -O3            -O2, -debug-info-kind=..., -mframe-pointer=all; the object has .debug_info
#   -O3 -g0        the same without debug information
#   -O3 -Xclang -O3   -O3 comes last and so holds
#
# A file of llama.cpp's tokenizer makes an object of 4.0 MB, of 0.4 with -g0 or by GCC, and takes a tenth more processor
# time. So "clang's build" of a Release is one at -O2, and benchmarks of compilers that pass -O3 to both compare two levels.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet ziglang==0.17.1
export ZIG_LOCAL_CACHE_DIR=$folder/cache ZIG_GLOBAL_CACHE_DIR=$folder/cache
cat >sum.c <<'C'
float sum(const float *x, int n) {
    float total = 0;
    for (int i = 0; i < n; i++) total += x[i];
    return total;
}
C
arguments() { venv/bin/python -m ziglang cc "$@" -c sum.c -o sum.o '-###' 2>&1 | grep -a -o -E '"-(O[0-9s]|debug-info-kind=[a-z-]+|mframe-pointer=[a-z-]+)"' | tr -d '"' | tr '\n' ' '; }
has_debug() { venv/bin/python -m ziglang cc "$@" -c sum.c -o sum.o && grep -a -q -F .debug_info sum.o; }
changed() { echo "behaviour changed: $*"; exit 1; }

for options in "-O3" "-O3 -g0" "-O3 -Xclang -O3"; do
    # shellcheck disable=SC2086 # words are wanted
    printf '%-18s %s\n' "$options" "$(arguments $options)"
done | tee seen.txt
head -n 1 seen.txt | grep -q -- "-O2 .*-debug-info-kind\|-debug-info-kind.*-O2 " || changed "-O3 without -g"
head -n 1 seen.txt | grep -q -- "-mframe-pointer=all" || changed "frame pointers"
sed -n 2p seen.txt | grep -q -- "-debug-info-kind" && changed "-g0"
tail -n 1 seen.txt | grep -q -- "-O3" || changed "-Xclang -O3"
has_debug -O3 || changed "the object of -O3 has no debug information"
has_debug -O3 -g0 && changed "the object of -g0 has debug information"
echo "ziglang 0.17.1: as described"
