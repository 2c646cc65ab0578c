"""How well the cluster is known: the state of one watch, for people and for fallbacks."""

from __future__ import annotations

import msgspec


class WatchState(msgspec.Struct, frozen=True, kw_only=True):
    """One list that is kept up to date."""

    name: str
    """What is watched: `node`, `pods`, `config`, `topology`."""
    age_seconds: float | None
    """Time since the server last vouched for what is held; None when it never did."""
    resource_version: str = ""
    """How far the watch has come, in the server's counting."""
    objects: int = 0
    relists: int = 0
    """How often the whole list had to be read again after the first time."""
    requests: int = 0
    error: str = ""
    """What was wrong with the last request; empty when nothing was."""
    absent: bool = False
    """The server does not know this kind of object: its CRD is not installed."""
    denied: bool = False
    """The server refused the last request to this identity (401 or 403)."""
