"""host + cluster → Snapshot: the only place where the picture is taken."""

from koordlite.observe.picture import Observer

__all__ = ["Observer"]
