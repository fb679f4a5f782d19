"""A certificate of one's own, as people make them."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_made(folder: Path) -> tuple[Path, Path]:
    """Return the files of a new certificate for this machine, and of its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    what = ["-subj", "/CN=localhost", "-addext", names, "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *what], check=True, capture_output=True)
    return certificate, key
