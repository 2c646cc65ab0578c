"""Tables of TCP sockets as the kernel prints them, and as nobody should."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.observe import connections

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
REST = "00000000:00000000 00:00000000 00000000     0        0 21283 1 0000000000000000 20 4 30 10 -1"


def line(own: str, other: str, state: str = "01", number: int = 0) -> str:
    return f"{number:4}: {own} {other} {state} {REST}\n"


ENDPOINTS = st.builds(
    lambda address, port: f"{address}:{port:04X}",
    st.one_of(
        st.integers(0, 2**32 - 1).map("{:08X}".format),
        st.integers(0, 2**128 - 1).map("{:032X}".format).filter(lambda a: "FFFF" not in a[16:24] + a[20:24]),
    ),
    st.integers(0, 65535),
)
STATES = st.sampled_from(["01", "01", "06", "0A", "08"])


@given(rows=st.lists(st.tuples(ENDPOINTS, ENDPOINTS, STATES), max_size=30))
def test_every_established_connection_is_read_and_nothing_else(rows: list[tuple[str, str, str]]) -> None:
    text = HEAD + "".join(line(*row, number) for number, row in enumerate(rows))
    wanted = [(own, other) for own, other, state in rows if state == "01"]
    assert list(connections.established(text.encode())) == wanted


@given(rows=st.lists(st.tuples(ENDPOINTS, ENDPOINTS), min_size=1, max_size=5), cut=st.integers(0, 2000))
def test_a_table_that_was_cut_gives_only_whole_lines(rows: list[tuple[str, str]], cut: int) -> None:
    text = (HEAD + "".join(line(*row) for row in rows)).encode()
    found = list(connections.established(text[:cut]))
    assert found == rows[: len(found)]


@given(st.binary(max_size=300))
def test_no_bytes_fail(raw: bytes) -> None:
    list(connections.established(raw))
    try:
        assert connections.in_use(raw) >= 0
    except ValueError as error:
        assert "number of TCP sockets" in str(error)


@pytest.mark.parametrize("prefix", ["0000000000000000FFFF0000", "00000000000000000000FFFF"])
def test_ipv4_in_the_table_of_ipv6_is_ipv4(prefix: str) -> None:
    """A server that listens on IPv6 has its clients of IPv4 there; its little-endian form is the first."""
    table = HEAD + line(f"{prefix}0100F40A:1F90", f"{prefix}0200F40A:8000")
    assert list(connections.established(table.encode())) == [("0100F40A:1F90", "0200F40A:8000")]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("sockets: used 9\nTCP: inuse 4 orphan 0 tw 7 alloc 6 mem 2\nUDP: inuse 1 mem 0\n", 11),
        ("TCP6: inuse 3\nUDP6: inuse 0\n", 3),
    ],
)
def test_sockets_in_use(text: str, number: int) -> None:
    assert connections.in_use(text.encode()) == number


def test_our_own_tables_can_be_read() -> None:
    """The kernel this runs on."""
    with open("/proc/self/net/tcp", "rb") as table, open("/proc/self/net/sockstat", "rb") as statistics:
        found = list(connections.established(table.read()))
        assert len(found) <= connections.in_use(statistics.read()) + 100
