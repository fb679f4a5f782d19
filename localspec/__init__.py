"""Speculative decoding on llama.cpp: a small model drafts, a large one decides."""

__version__ = "0.2.0.dev0"
BINDING = "llama-cpp-python>=0.3.36,<0.4"  # as in pyproject.toml, for lines that reinstall it: later ones differ in API
