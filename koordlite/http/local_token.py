"""People on the same machine: its addresses, and their token, a new one each start, which only its owner can read.

Imports next to nothing: every command that asks an agent loads it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pathlib
import secrets
from collections.abc import Iterator

NAME = "http-token"
"""File in the agent's folder."""


def make(folder: str) -> str:
    """Write a fresh token into `folder` and return it. OSError when that cannot be done."""
    pathlib.Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    place = pathlib.Path(folder, NAME)
    fresh = place.with_name(f"{NAME}.new")
    fresh.unlink(missing_ok=True)
    # O_EXCL follows no link that was put there meanwhile.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    fresh.replace(place)
    return token


def read(folder: str) -> str:
    """The token of the agent whose folder this is. OSError when there is none, or it is not ours to read."""
    return pathlib.Path(folder, NAME).read_text(encoding="ascii").strip()


def forget(folder: str, token: str) -> None:
    """Remove the file, unless another agent has put its own there since."""
    try:
        if read(folder) == token:
            pathlib.Path(folder, NAME).unlink()
    except (OSError, UnicodeDecodeError):
        return  # It is gone, or not ours: either way there is nothing to remove.


@contextlib.contextmanager
def kept(folder: str, *, required: bool = True) -> Iterator[str]:
    """A fresh token in `folder` while the block runs; empty without a folder. OSError when it cannot be written; where
    it is not `required` there is none then, and no one on this machine can change levels."""
    token = ""
    try:
        token = make(folder) if folder else ""
    except OSError as error:
        if required:
            raise
        import logging  # Commands that only ask need none.

        logging.getLogger(__name__).info("there is no token for changes over HTTP: %s", error)
    try:
        yield token
    finally:
        if token:
            forget(folder, token)


def is_loopback(address: str) -> bool:
    """Tell if only this machine can connect to `address`. A name other than localhost counts as not."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
