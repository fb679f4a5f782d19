"""The vocabulary of a verifier's target: its file without the weights, kept in the cache folder under its own digest.

With it an edge reads prompts, writes text and stops as the verifier does, whether it has a model of its own or none.
"""

import hashlib
import re
import zlib
from pathlib import Path

from localspec.errors import IncompatibleError, IntegrityError, NetworkError, ResourceError
from localspec.remote.connection import Connection
from localspec.remote.messages import LONGEST_PART, VERSION, Facts, Fetch, Look, VocabularyPart
from localspec.settings.folders import cache_folder, replacing

FOLDER = "vocabularies"
LARGEST = 64 << 20  # bytes, unpacked: as much as is read of any header
DIGEST = re.compile(r"[0-9a-f]{64}")


def vocabulary_of(whole: bytes) -> tuple[str, bytes]:
    """Return the digest of a vocabulary, and what is sent of it."""
    return hashlib.sha256(whole).hexdigest(), zlib.compress(whole)


def look(connection: Connection) -> Facts:
    """Return what a verifier holds. Raises IncompatibleError for one of another version."""
    facts = connection.ask(Look(VERSION))
    if not isinstance(facts, Facts) or not DIGEST.fullmatch(facts.vocabulary) or facts.size > LARGEST:
        raise NetworkError(f"{connection.address.name} does not say what it holds", hint="pip install -U localspec")
    if facts.version != VERSION:
        message = f"the verifier speaks version {facts.version} of the protocol, and this localspec {VERSION}"
        raise IncompatibleError(message, hint="pip install -U localspec, on the older machine")
    return facts


def fetched(connection: Connection, facts: Facts) -> Path:
    """Return the file of a verifier's vocabulary, fetched where it is not here. Raises IntegrityError for another."""
    folder = cache_folder(FOLDER)
    file = folder / f"{facts.vocabulary}.gguf"
    if file.is_file():
        return file
    packed = bytearray()
    while len(packed) < facts.size:
        part = connection.ask(Fetch(len(packed)))
        if not isinstance(part, VocabularyPart) or part.start != len(packed) or not 0 < len(part.data) <= LONGEST_PART:
            raise NetworkError(f"{connection.address.name} does not send its vocabulary", hint="Ask again.")
        packed += part.data
    unpacker = zlib.decompressobj()
    try:
        whole = unpacker.decompress(bytes(packed), LARGEST)
    except zlib.error:
        whole = b""
    if hashlib.sha256(whole).hexdigest() != facts.vocabulary:
        raise IntegrityError(f"the vocabulary of {connection.address.name} is damaged", hint="Ask again.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with replacing(file) as out:
            out.write(whole)
    except OSError as error:
        raise ResourceError(f"cannot write to {folder}: {error.strerror}", hint="LOCALSPEC_HOME=FOLDER") from error
    return file
