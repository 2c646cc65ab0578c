"""Certificates that sign themselves, made by openssl."""

from __future__ import annotations

import pathlib
import subprocess


def certificate(folder: pathlib.Path, name: str, names: str = "IP:127.0.0.1") -> tuple[str, str]:
    """The files of a certificate for `names` and of its key."""
    cert, key = str(folder / f"{name}.crt"), str(folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", key, "-out", cert, "-days", "2", "-subj", f"/CN={name}", "-addext"]
    subprocess.run([*command, f"subjectAltName={names}"], check=True, capture_output=True)
    return cert, key
