"""Taking over a node that another agent left: which values are its, and what would stand there without it.

koordlet gives nothing back when it stops. The next agent would find what it wrote as if it had always been there, and
would be put back when that one stops. `recognise` tells such values, `seed` notes in the undo journal what kubelet
would have written in their place. Nothing else is written: the agent goes on from there as after a run of its own.
"""

from __future__ import annotations

from koordlite.adopt.traces import Recognition, Trace, koordlet_pid, recognise, seed

__all__ = ["Recognition", "Trace", "koordlet_pid", "recognise", "seed"]
