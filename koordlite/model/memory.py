"""Memory of strategies from one round to the next."""

from __future__ import annotations

import msgspec


class Memory(msgspec.Struct, frozen=True):
    """Memory of one strategy; each that keeps something has a kind of its own. Everything in it has a default: what the
    strategy knows at first."""
