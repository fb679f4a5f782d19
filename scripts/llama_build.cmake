# Included by CMake right after llama.cpp's own project(): llama-cpp-python turns its common library on, and localspec
# loads nothing of it.
set(LLAMA_BUILD_COMMON OFF)
