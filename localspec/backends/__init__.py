"""Backends: one model and its cache behind the `Backend` protocol. Only `models.exit_files` imports llama_cpp too."""
