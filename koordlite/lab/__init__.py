"""An emulated node behind the ports of the real one: its files obey the kernel's rules, its workloads answer to them.

Used by the tour, by `simulate` and by tests. Deterministic: the same shape, seed, manifests and writes give the same
bytes at the same simulated second.
"""

from koordlite.lab.machine.shapes import shapes
from koordlite.lab.sandbox import Sandbox

__all__ = ["Sandbox", "shapes"]
