"""A bounded, pure-Python reader of GGUF headers, which looks at a file before llama.cpp does.

llama.cpp's own parser aborts or crashes on malformed files; this one refuses them with a reason. `header.read_header`
checks a file's structure, `info.model_info` says what the model is.
"""
