"""Does Koordinator's own scheduler run here? Then it holds the places, and the controller stands back."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from koordlite.model import times

LEASE_NAMESPACE, LEASE = "koordinator-system", "koord-scheduler"
FRESH_SECONDS = 60.0
"""A lease that was renewed within this time has a holder that lives; its own renewals come each 2 s."""


def sign(pods: Collection[str], lease: Mapping[str, Any] | None, now: float) -> str:
    """By what it was found, in words; empty when it does not run. `pods`: names of its pods that run."""
    if pods:
        return f"pod {min(pods)} runs"
    spec = (lease or {}).get("spec")
    spec = spec if isinstance(spec, dict) else {}
    renewed = times.parse_or_none(spec.get("renewTime") if isinstance(spec.get("renewTime"), str) else None)
    holder = spec.get("holderIdentity")
    if not holder or renewed is None or now - renewed > FRESH_SECONDS:
        return ""
    return f"lease {LEASE_NAMESPACE}/{LEASE} is held by {holder}, renewed {max(0.0, now - renewed):.0f} s ago"
