"""Connections between pods: the sockets of all pods, each end in its own network namespace, matched to connections."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Socket = tuple[str, str]
"""Its own endpoint, and the one of the other side; two endpoints are the same when their texts are."""


def matched(sockets: Mapping[str, Sequence[Socket]]) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Count, from the sockets of each pod, the connections that leave it and those between two pods of the node.

    A connection counts for a pair only when both ends are there, so no pod can claim one with another that knows
    nothing of it. First the two ends that name each other. Then, as kube-proxy rewrites addresses of Services, an end
    whose other side is found under another address: the one names the other's own endpoint, and that one names an
    address that nobody has. Pairs are in the order of their names.
    """
    totals: dict[str, int] = {}
    owners: dict[Socket, list[str]] = defaultdict(list)
    for pod in sorted(sockets):
        mine = frozenset(sockets[pod])
        leaving = [(own, other) for own, other in mine if (other, own) not in mine]
        totals[pod] = len(leaving)
        for socket in leaving:
            owners[socket].append(pod)
    pairs: Counter[tuple[str, str]] = Counter()
    single: list[tuple[str, Socket]] = []
    for (own, other), pods in owners.items():
        partners = owners.get((other, own), [])
        if own < other:  # Each of the two ends sees the other: the connection is counted once.
            pairs.update((min(ends), max(ends)) for ends in zip(pods, partners, strict=False))
        single += ((pod, (own, other)) for pod in pods[len(partners) :])
    return totals, dict(sorted((pairs + _rewritten(sorted(single))).items()))


def _rewritten(single: Sequence[tuple[str, Socket]]) -> Counter[tuple[str, str]]:
    """Connections whose client named the address of a Service: only the server's end has the client's own address."""
    by_own: dict[str, list[int]] = defaultdict(list)
    for number, (_, (own, _)) in enumerate(single):
        by_own[own].append(number)
    pairs: Counter[tuple[str, str]] = Counter()
    paired: set[int] = set()
    for number, (pod, (_, other)) in enumerate(single):
        if number in paired:
            continue
        client = next((n for n in by_own.get(other, ()) if n not in paired and single[n][0] != pod), None)
        if client is not None:
            paired |= {number, client}
            name = single[client][0]
            pairs[min(pod, name), max(pod, name)] += 1
    return pairs
