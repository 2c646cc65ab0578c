"""The kernel's tables of TCP sockets, one pair for each network namespace: `/proc/PID/net/tcp` and `tcp6`.

An endpoint stays the text that the kernel prints, `0100007F:1F90`: it is only compared, so the byte order of the
machine does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Socket = tuple[str, str]
"""Its own endpoint, and the one of the other side."""

_ESTABLISHED = b"01"
_IPV4_IN_IPV6 = ("0000000000000000FFFF0000", "00000000000000000000FFFF")
"""How `::ffff:0:0/96` begins on machines of either byte order: one socket may be in the table of either family."""
_IPV6_ENDPOINT = 37
_ENDPOINT = re.compile(rb"(?:[0-9A-F]{8}|[0-9A-F]{32}):[0-9A-F]{4}\Z")
_IN_USE = re.compile(rb"^TCP6?: inuse (\d+)", re.MULTILINE)
_WAITING = re.compile(rb"^TCP: .*\btw (\d+)", re.MULTILINE)


def established(table: bytes) -> Iterator[Socket]:
    """The established connections in one table; its headline and lines of any other form are passed over.

    The kernel writes a table page by page while connections come and go, so the last line may be cut.
    """
    for line in table.splitlines():
        fields = line.split(None, 4)
        if len(fields) < 4 or fields[3] != _ESTABLISHED or not (_ENDPOINT.match(fields[1])):
            continue
        if _ENDPOINT.match(fields[2]):
            yield _plain(fields[1].decode()), _plain(fields[2].decode())


def in_use(sockstat: bytes) -> int:
    """Upper bound of a namespace's TCP sockets, from its `sockstat` or `sockstat6`: what its tables will cost.

    ValueError when the text does not say.
    """
    found = _IN_USE.search(sockstat)
    if found is None:
        raise ValueError(f"no number of TCP sockets in {sockstat[:80]!r}")
    waiting = _WAITING.search(sockstat)
    return int(found[1]) + (int(waiting[1]) if waiting else 0)


def _plain(endpoint: str) -> str:
    """IPv4 inside IPv6 as the table of IPv4 has it."""
    if len(endpoint) == _IPV6_ENDPOINT and endpoint.startswith(_IPV4_IN_IPV6):
        return endpoint[24:]
    return endpoint
