"""A certificate of one's own, as people make them."""

import subprocess
from pathlib import Path


def self_made(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> tuple[Path, Path]:
    """Return the files of a new certificate for this machine, or for other `names`, and of its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"]
    subprocess.run(
        [*made, *named, "-days", "2", "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True
    )
    return certificate, key
