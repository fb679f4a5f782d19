"""GGUF files read by the package's own reader, three times as fast: each slice of its memory map is a costly object."""

from pathlib import Path
from unittest.mock import patch

import gguf
import numpy as np


def read_gguf(path: Path) -> gguf.GGUFReader:
    with patch.object(np, "memmap", lambda file, mode: np.fromfile(file, np.uint8)):
        return gguf.GGUFReader(path)
