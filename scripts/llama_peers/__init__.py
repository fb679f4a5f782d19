"""llama.cpp's own server and bench, built from the source of the llama.cpp that is installed. Development only."""
