#!/usr/bin/env bash
# llama.cpp (llama-cpp-python 0.3.36), -DGGML_VULKAN=on: CMake takes any version of Vulkan's headers, and the C++ code needs
# those of 1.3.272 (VK_EXT_layer_settings) or newer.
#
# Guessed: where CMake ends with "Vulkan found", the backend compiles.
# Seen, with Debian 12's libvulkan-dev 1.3.239.0-1, glslc 2023.2-1 and spirv-headers:
#
#   cmake              ends well: Vulkan found (version "1.3.239"), "Including Vulkan backend"
#   the build          compiles 1 118 shaders, a quarter of an hour on two cores, and then
#   ggml-vulkan.cpp    error: 'LayerSettingEXT' is not a member of 'vk'
#
# With the headers of Debian 13 (1.4.309) and all else of Debian 12 it compiles. Run as root on Debian 12; the shaders are
# left out here, so it takes two minutes of processor time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get install -y -q libvulkan-dev=1.3.239.0-1 glslc=2023.2-1 spirv-headers cmake ninja-build g++ >/dev/null
python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python llama-cpp-python==0.3.36
tar xzf llama_cpp_python-0.3.36.tar.gz
source=llama_cpp_python-0.3.36/vendor/llama.cpp
cmake -S $source -B build -G Ninja -DGGML_VULKAN=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF >cmake.log 2>&1
grep -q 'Including Vulkan backend' cmake.log || { echo "other than seen: cmake takes no Vulkan"; exit 1; }
touch ggml-vulkan-shaders.hpp # what would hold the shaders
g++ -std=c++17 -fsyntax-only -fmax-errors=0 -I. -I$source/ggml/include -I$source/ggml/src \
    $source/ggml/src/ggml-vulkan/ggml-vulkan.cpp 2>errors.log || true
grep -m 1 -o "error: .*LayerSettingEXT.*" errors.log || { echo "other than seen: the headers are new enough"; exit 1; }
echo "as seen: CMake takes the headers, and the compiler does not"
