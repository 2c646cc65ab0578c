"""The Static policy of kubelet's memory manager: hints and reservations of memory and huge pages.

A NUMA node serves requests either alone or in one fixed group. Source: kubelet 1.36, `policy_static.go` of
`cm/memorymanager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from koordlite.model.picture.kubelet import MemoryBlock
from koordlite.numa.kubelet.merge import Hint, Hints, Nodes, hints_by_nodes, unexpected
from koordlite.numa.kubelet.requests import ContainerRequest, Counts, PodRequest
from koordlite.numa.machine import mask_of, nodes_of

Reusable = Mapping[tuple[int, str], int]
"""Bytes that ended init containers of the pod have reserved, by mask and kind."""

_PREFIX = "[memorymanager]"


class Table(NamedTuple):
    """Bytes of one kind of memory on one NUMA node: those it may hand out, and those of them that are free."""

    allocatable: int = 0
    free: int = 0


NOTHING = Table()


class MemoryNode(msgspec.Struct, frozen=True):
    """A NUMA node. `group`: the nodes it serves requests together with; itself alone while it serves them singly."""

    tables: Mapping[str, Table]
    group: tuple[int, ...]
    assignments: int = 0

    def free(self, kind: str) -> int:
        """Bytes of this kind that nobody has reserved."""
        return self.tables.get(kind, NOTHING).free

    def after(self, kind: str, size: int, group: tuple[int, ...], assignments: int) -> MemoryNode:
        """The node after `size` bytes were reserved, negative to give them back."""
        table = self.tables.get(kind)
        tables = self.tables if table is None else {**self.tables, kind: table._replace(free=table.free - size)}
        return MemoryNode(tables, group, assignments)


Blocks = tuple[MemoryBlock, ...]
"""Memory that a container has reserved."""


class MemoryState(msgspec.Struct, frozen=True):
    """All NUMA nodes, and the blocks by pod uid and container. No NUMA node: the policy is None."""

    nodes: Mapping[int, MemoryNode]
    assigned: Mapping[str, Mapping[str, Blocks]] = msgspec.field(default_factory=dict)

    def of(self, uid: str, container: str) -> Blocks | None:
        """The blocks a container has already."""
        return self.assigned.get(uid, {}).get(container)

    def with_blocks(self, uid: str, container: str, blocks: Blocks) -> MemoryState:
        """The state with a container's blocks on record; the NUMA nodes are not touched."""
        own = {**self.assigned.get(uid, {}), container: blocks}
        return MemoryState(self.nodes, {**self.assigned, uid: own})

    def reserving(self, block: MemoryBlock, size: int) -> MemoryState:
        """The state after `size` bytes of the block were reserved on its nodes, the lowest first."""
        nodes = dict(self.nodes)
        for id_ in block.nodes:
            node = nodes[id_]
            part = min(size, max(0, node.free(block.kind)))
            size -= part
            nodes[id_] = node.after(block.kind, part, block.nodes, node.assignments + 1)
        return MemoryState(nodes, self.assigned)

    def without(self, uid: str) -> MemoryState:
        """The state after a pod has gone."""
        nodes = dict(self.nodes)
        for block in (block for blocks in self.assigned.get(uid, {}).values() for block in blocks):
            size = block.size
            for id_ in block.nodes:
                node, table = nodes[id_], nodes[id_].tables.get(block.kind, NOTHING)
                part = min(size, table.allocatable - table.free)
                size -= part
                group = node.group if node.assignments > 1 else (id_,)
                nodes[id_] = node.after(block.kind, -part, group, node.assignments - 1)
        return MemoryState(nodes, {pod: own for pod, own in self.assigned.items() if pod != uid})


NO_NODES = MemoryState({})


def first_state(nodes: Iterable[int], allocatable: Iterable[MemoryBlock]) -> MemoryState:
    """The state of a machine with these NUMA nodes on which nothing runs, by what kubelet may give out. It lists no
    amount for a node with nothing to give; where it lists none at all, no memory is managed."""
    tables: dict[int, dict[str, Table]] = {}
    for block in allocatable:
        for node in block.nodes[:1]:
            tables.setdefault(node, {})[block.kind] = Table(block.size, block.size)
    ids = sorted({*nodes, *tables}) if tables else ()
    return MemoryState({node: MemoryNode(tables.get(node, {}), (node,)) for node in ids})


def hints(state: MemoryState, pod: PodRequest, reusable: Reusable) -> Hints | None:
    """Hints of the policy for the pod as a whole; None when it reserves nothing for it."""
    request = pod.memory
    if not request:
        return None
    blocks = next((b for c in pod.containers if (b := state.of(pod.uid, c.name)) is not None), None)
    if blocks is None:
        sets = _sets(state, request, reusable)
        return dict.fromkeys(request, sets) if sets else {}
    if len(blocks) != len(request) or any(request.get(block.kind) != block.size for block in blocks):
        return None  # No opinion, where it now asks for something else than it has.
    return {block.kind: [Hint(mask_of(block.nodes), True)] for block in blocks}


def allocate(
    state: MemoryState,
    uid: str,
    container: ContainerRequest,
    *,
    affinity: Hint,
    reusable: Reusable,
    keeps_groups: bool = True,
) -> MemoryState:
    """The state after the container's memory was reserved; `Refused` when it cannot be.

    An affinity that is too small is extended to a hint of our own around it. `keeps_groups` false allocates as kubelet
    1.23 did, also where that breaks up a group.
    """
    request = container.memory
    if not request or state.of(uid, container.name) is not None:
        return state
    best, sets = affinity, _sets(state, request, reusable)
    if best.mask is None:
        nothing = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        best = _best(sets, affinity, nothing, "default")
    nodes = nodes_of(best.mask or 0)
    if any(sum(state.nodes[node].free(kind) for node in nodes) < size for kind, size in request.items()):
        nothing = "failed to find NUMA nodes to extend the current topology hint"
        nodes = nodes_of(_best(sets, best, nothing, "extended").mask or 0)
    if keeps_groups and _breaks_group(state, nodes):
        raise unexpected(f"{_PREFIX} preferred hint violates NUMA node allocation")
    blocks, mask = tuple(MemoryBlock(kind, size, nodes) for kind, size in request.items()), mask_of(nodes)
    for block in blocks:
        state = state.reserving(block, max(0, block.size - reusable.get((mask, block.kind), 0)))
    return state.with_blocks(uid, container.name, blocks)


def _best(sets: Iterable[Hint], around: Hint, nothing: str, word: str) -> Hint:
    """The preferred one, else the narrowest, of those that contain `around`; `Refused` without one, or without a
    preferred one where `around` is preferred."""
    mask = around.mask or 0
    fitting = [hint for hint in sets if (hint.mask or 0) & mask == mask]
    if not fitting:
        raise unexpected(f"{_PREFIX} {nothing}")
    best = min(fitting, key=lambda h: (not h.preferred, (h.mask or 0).bit_count(), h.mask or 0))
    if around.preferred and not best.preferred:
        raise unexpected(f"{_PREFIX} failed to find the {word} preferred hint")
    return best


def _sets(state: MemoryState, request: Counts, reusable: Reusable) -> list[Hint]:
    """A hint for every set of NUMA nodes that has enough free, the same for all kinds of memory.

    Preferred are those of the size that could hold the request on an empty machine.
    """

    def could(nodes: Nodes) -> bool:
        tables = [state.nodes[node].tables for node in nodes]
        return all(sum(t.get(kind, NOTHING).allocatable for t in tables) >= size for kind, size in request.items())

    def can(nodes: Nodes, mask: int) -> bool:
        parts = [state.nodes[node] for node in nodes]
        if (len(nodes) == 1 and len(parts[0].group) > 1) or _breaks_group(state, nodes):
            return False
        return all(sum(p.free(kind) for p in parts) + reusable.get((mask, kind), 0) >= n for kind, n in request.items())

    return hints_by_nodes(state.nodes, could, can)


def _breaks_group(state: MemoryState, nodes: tuple[int, ...]) -> bool:
    """Tell whether several nodes would serve a request together, one of which is in use alone or in another group."""
    parts = [state.nodes[node] for node in nodes]
    return len(nodes) > 1 and any(p.assignments > 0 and tuple(sorted(p.group)) != nodes for p in parts)


def reusable_after(reusable: Reusable, container: ContainerRequest, blocks: Blocks) -> Reusable:
    """Memory that later containers of the pod can use again: an init container's memory, less what others have used."""
    after = dict(reusable)
    for block in blocks:
        key = (mask_of(block.nodes), block.kind)
        size = after.get(key, 0)
        after[key] = max(size, block.size) if container.kind == "init" else max(0, size - block.size)
    return after


def share_with_init(state: MemoryState, pod: PodRequest, container: ContainerRequest) -> MemoryState:
    """The state with the blocks of earlier init containers made smaller by what this container uses of them again, so
    that the blocks of a pod add up to what it has reserved."""
    earlier = pod.containers[: [each.name for each in pod.containers].index(container.name)]
    for own in state.of(pod.uid, container.name) or ():
        size = own.size
        for init in (each for each in earlier if each.kind == "init"):
            blocks = []
            for block in state.of(pod.uid, init.name) or ():
                same = block.kind == own.kind and set(block.nodes) == set(own.nodes)
                part = min(block.size, size) if same else 0
                size -= part
                blocks.append(msgspec.structs.replace(block, size=block.size - part))
            state = state.with_blocks(pod.uid, init.name, tuple(blocks)) if blocks else state
    return state
