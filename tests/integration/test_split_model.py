"""A target in parts, loaded by llama.cpp, says what the whole one says."""

from pathlib import Path

import gguf
import numpy as np

from localspec.models.gguf.shards import read_model
from tests.integration import pair
from tests.weights.read_gguf import read_gguf


def split(source: Path, folder: Path, n: int) -> Path:
    """Write `source` in `n` parts with about as many tensors each; return the first."""
    reader = read_gguf(source)
    paths = [folder / f"t-{number + 1:05}-of-{n:05}.gguf" for number in range(n)]
    for number, path in enumerate(paths):
        writer = gguf.GGUFWriter(path, "llama")
        if number:
            writer.kv_data[0].clear()  # later parts say nothing but which they are
        else:
            for key, field in reader.fields.items():
                if not key.startswith("GGUF.") and key != "general.architecture":
                    sub_type = field.types[-1] if len(field.types) > 1 else None
                    writer.add_key_value(key, field.contents(), field.types[0], sub_type=sub_type)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", n)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        for tensor in reader.tensors[number::n]:
            writer.add_tensor(tensor.name, np.asarray(tensor.data), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return paths[0]


def test_a_split_target_tells_the_same_story(tmp_path: Path) -> None:
    first = split(pair.TARGET, tmp_path, 3)
    header = read_model(first.with_name("t-00003-of-00003.gguf"))
    assert header.path == first
    assert len(header.files) == 3
    with pair.backend(pair.TARGET) as whole, pair.backend(header.path) as parts:
        assert parts.model.n_bytes == whole.model.n_bytes
        assert pair.plain(parts, max_tokens=40).tokens == pair.plain(whole, max_tokens=40).tokens
