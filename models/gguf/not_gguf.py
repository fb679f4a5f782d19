"""What a file is that is not GGUF, or of a version that cannot be read: its first bytes say so."""

from localspec.models.gguf.cursor import HeaderCursor
from localspec.sanitize import shown

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)

_PEEK = 512
_DOWNLOAD = "download the file itself: on its page choose 'download', not the address of the page"
_NO_MODEL = "name a model's file, which ends in .gguf, or a pair of: localspec pairs list"
_LITTLE = "download the little-endian version of the model"
_UPDATE = "update with: pip install -U llama-cpp-python localspec"
_CONVERT = "convert it with llama.cpp's convert_hf_to_gguf.py, or download a GGUF version of the model"
# First bytes, what they mean, what to do.
_OTHERS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"version https://git-lfs",
        "it is a Git-LFS pointer, not the file it stands for",
        "fetch the file with: git lfs pull",
    ),
    (b"PK\x03\x04", "it is a zip archive, such as a PyTorch checkpoint", _CONVERT),
    (b"\x80\x02", "it is a Python pickle, such as a PyTorch checkpoint", _CONVERT),
    (b"FUGG", "it was written for a machine of the other byte order", _LITTLE),
    (b"\x1f\x8b", "it is a gzip archive", "unpack it with gunzip"),
    (b"\x28\xb5\x2f\xfd", "it is a zstd archive", "unpack it with unzstd"),
    *(
        (magic, "it is of the GGML format that came before GGUF", _CONVERT)
        for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")
    ),
)


def check_magic(cursor: HeaderCursor) -> int:
    """Read magic and version, and return the version; raise IntegrityError that says what the file is instead."""
    if not cursor.size:
        raise cursor.bad("it is empty", hint="the download never started: download the file again")
    cursor.need(min(_PEEK, cursor.size), "the magic number")
    head = bytes(cursor.data[:_PEEK])
    if not head.startswith(MAGIC) and not MAGIC.startswith(head):
        what, hint = _what_it_is(head, cursor.size)
        raise cursor.bad(what, _NO_MODEL if hint == _DOWNLOAD and not cursor.name.lower().endswith(".gguf") else hint)
    cursor.take(4, "the magic number")
    version = cursor.u32("the version")
    if version and not version & 0xFFFF:
        raise cursor.bad("its version has the other byte order: it was made for a big-endian machine", hint=_LITTLE)
    if version not in SUPPORTED_VERSIONS:
        hint = _CONVERT if version < min(SUPPORTED_VERSIONS) else _UPDATE
        raise cursor.bad(f"its version is {version}, and only versions 2 and 3 are supported", hint=hint)
    return version


def _what_it_is(head: bytes, size: int) -> tuple[str, str]:
    for magic, what, hint in _OTHERS:
        if head.startswith(magic):
            return what, hint
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page, probably an error message saved under this name", _DOWNLOAD
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        return "it is a safetensors file", _CONVERT
    if _is_text(head):
        return "it is a text file", _DOWNLOAD
    return (
        f"it starts with '{shown(head[:4])}' instead of 'GGUF'",
        "check that this is the file you meant, or download it again",
    )


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        # The peek may have cut the last character in two.
        if len(head) < _PEEK or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode("utf-8")
    return all(c.isprintable() or c in "\t\n\r\f" for c in text)
