"""TCP connections between the pods of the emulated node, as each pod's network namespace shows them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping

_HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
_SERVER_PORT, _FIRST_CLIENT_PORT = 8080, 32768
_PORTS = 28000
ELSEWHERE = ""
"""Stands for a client outside the node."""


class Connections:
    """Connections between pods. Every pod has an address of its own, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {ELSEWHERE: 0}
        self._sockets: Mapping[str, list[tuple[str, str]]] = {}

    def set(self, talks: Mapping[tuple[str, str], int]) -> None:
        """Set the numbers of connections from the first pod of each pair to the second, by uid."""
        sockets: dict[str, list[tuple[str, str]]] = defaultdict(list)
        ports: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        for (client, server), number in talks.items():
            for _ in range(number):
                port = _FIRST_CLIENT_PORT + next(ports[client]) % _PORTS
                near, far = self._endpoint(client, port), self._endpoint(server, _SERVER_PORT)
                sockets[client].append((near, far))
                sockets[server].append((far, near))
        self._sockets = sockets

    def statistics(self, uid: str) -> str:
        """`sockstat` of the pod's network namespace."""
        number = len(self._sockets.get(uid, ()))
        return f"sockets: used {number + 2}\nTCP: inuse {number} orphan 0 tw 0 alloc {number} mem 0\n"

    def table(self, uid: str) -> str:
        """`tcp` of the pod's network namespace."""
        columns = "01 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000 20 4 30 10 -1"
        rows = (f"{n:4}: {own} {other} {columns}\n" for n, (own, other) in enumerate(self._sockets.get(uid, ())))
        return _HEAD + "".join(rows)

    def _endpoint(self, uid: str, port: int) -> str:
        """10.244.x.y:port as a little-endian machine prints it."""
        number = self._numbers.setdefault(uid, len(self._numbers))
        return f"{number & 255:02X}{number >> 8 & 255:02X}F40A:{port:04X}"


def parse(text: str) -> dict[str, int]:
    """`shop/cache-0: 40, shop/db: 3` as connections by `namespace/name`; `elsewhere: 5` leave the node.

    ValueError names the part that is none.
    """
    numbers: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = (each.strip() for each in part.partition(":"))
        if not name or not number.isascii() or not number.isdecimal():
            raise ValueError(f"{part.strip()!r} is not of the form NAMESPACE/NAME: NUMBER")
        numbers[ELSEWHERE if name == "elsewhere" else name] = int(number)
    return numbers
