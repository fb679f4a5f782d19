# Included by CMake right after llama.cpp's own project(): llama-cpp-python turns its common library on, and localspec
# loads nothing of it.
set(LLAMA_BUILD_COMMON OFF)
# GCC before 11.5, 12.4 and 13.3 needs two intrinsics of AMX corrected.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13.3)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/gcc_amx.h\">")
endif()
