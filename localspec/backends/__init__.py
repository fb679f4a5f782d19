"""Backends: one model and its cache behind the `Backend` protocol. Only `models.early_exit` imports llama_cpp too."""
