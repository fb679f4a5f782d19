"""The type numbers of GGUF files, as llama.cpp of llama-cpp-python 0.3.36 knows them.

Sources: `ggml_type` in ggml/include/ggml.h with the sizes of ggml-common.h, `gguf_type` in ggml/include/gguf.h and
`llama_ftype` in include/llama.h. A test compares the tensor types with the `gguf` package.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """How a tensor type is stored: rows are cut into blocks of `block` elements, `size` bytes each."""

    name: str
    block: int
    size: int

    @property
    def bits(self) -> float:
        return 8 * self.size / self.block


# Numbers 4, 5, 31-33 and 36-38 were removed from ggml: files with them no longer load, so they are unknown here.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),         1: TensorType("F16", 1, 2),         2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),      6: TensorType("Q5_0", 32, 22),      7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),      9: TensorType("Q8_1", 32, 36),      10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),   12: TensorType("Q4_K", 256, 144),   13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),   15: TensorType("Q8_K", 256, 292),   16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),  18: TensorType("IQ3_XXS", 256, 98), 19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),   21: TensorType("IQ3_S", 256, 110),  22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136), 24: TensorType("I8", 1, 1),         25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),        27: TensorType("I64", 1, 8),        28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),   30: TensorType("BF16", 1, 2),       34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),   39: TensorType("MXFP4", 32, 17),    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),    42: TensorType("Q2_0", 64, 18),
}  # fmt: skip

STRING_TYPE = 8
ARRAY_TYPE = 9

VALUE_TYPES: dict[int, str] = {
    0: "u8", 1: "i8", 2: "u16", 3: "i16", 4: "u32", 5: "i32", 6: "f32", 7: "bool", STRING_TYPE: "str",
    ARRAY_TYPE: "arr", 10: "u64", 11: "i64", 12: "f64",
}  # fmt: skip

# struct format characters of the fixed-size values; `array` uses the same letters for the same sizes.
VALUE_FORMATS: dict[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "b", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip

FILE_TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS",
    20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
    39: "NVFP4", 40: "Q1_0", 41: "Q2_0",
}  # fmt: skip
