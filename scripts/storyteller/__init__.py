"""Make the bundled pair: train the target, let it write, distil the draft, export GGUF, measure.

Development only: needs torch, safetensors, tokenizers, gguf and numpy, none of which localspec itself imports
from here. Every stage is a function of its inputs and a seed, writes atomically, and picks up where it was killed.
"""
