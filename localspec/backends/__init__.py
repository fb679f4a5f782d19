"""Backends: one model and its cache behind the `Backend` protocol. Nothing else in localspec imports llama_cpp."""
