"""llama.cpp's own server and bench, built from the source that localspec's llama.cpp was built from. Development only."""
