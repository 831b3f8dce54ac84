"""Certificates for tests of TLS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


def self_signed(directory: Path) -> tuple[Path, Path]:
    """Return a certificate for localhost that is its own authority, and its key. Without openssl the test is
    skipped."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    try:
        made = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-keyout", str(key), "-out", str(cert)],
            capture_output=True, check=False,
        ).returncode == 0  # fmt: skip
    except FileNotFoundError:
        made = False
    if not made and os.environ.get("CI"):
        pytest.fail("openssl is needed here; install it, CI tests everything")
    if not made:
        pytest.skip("openssl is not installed here")
    return cert, key
