"""The child process that runs llama.cpp, its protocol, and the client that starts it."""
