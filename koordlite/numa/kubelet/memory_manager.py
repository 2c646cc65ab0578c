"""The Static policy of kubelet's memory manager: hints and reservations of memory and huge pages.

A NUMA node serves requests either alone or in one fixed group. Source: kubelet 1.36, `policy_static.go` of
`cm/memorymanager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode
from koordlite.numa.kubelet.merge import Hint, Hints, Nodes, hints_by_nodes, unexpected
from koordlite.numa.kubelet.requests import ContainerAsk, Counts, PodAsk
from koordlite.numa.machine import mask_of, nodes_of

Reusable = Mapping[tuple[int, str], int]
"""Bytes that ended init containers of the pod have reserved, by mask and kind."""

_PREFIX = "[memorymanager]"


class MemoryPolicy(msgspec.Struct, frozen=True):
    """Policy `Static`. `keeps_groups` false allocates as kubelet 1.23 did, also where that breaks up a group."""

    keeps_groups: bool = True

    def hints(self, state: MemoryState, pod: PodAsk, reusable: Reusable) -> Hints | None:
        """Hints of the policy for the pod as a whole; None when it reserves nothing for it."""
        wanted = pod.memory
        if not wanted:
            return None
        given = next((b for c in pod.containers if (b := state.of(pod.uid, c.name)) is not None), None)
        return calculate_hints(state, wanted, reusable) if given is None else _hints_again(given, wanted)

    def allocate(
        self, state: MemoryState, uid: str, container: ContainerAsk, *, affinity: Hint, reusable: Reusable
    ) -> MemoryState:
        """The state after the container's memory was reserved; `Refused` when it cannot be.

        An affinity that is too small is extended to a hint of our own around it.
        """
        wanted = container.memory
        if not wanted or state.of(uid, container.name) is not None:
            return state
        nodes = nodes_of(self._mask(state, wanted, affinity, reusable))
        if self.keeps_groups and _breaks_group(state, nodes):
            raise unexpected(f"{_PREFIX} preferred hint violates NUMA node allocation")
        blocks = tuple(Block(nodes, kind, size) for kind, size in wanted.items())
        mask = mask_of(nodes)
        for block in blocks:
            state = state.taking(block, max(0, block.size - reusable.get((mask, block.kind), 0)))
        return state.with_blocks(uid, container.name, blocks)

    def _mask(self, state: MemoryState, wanted: Counts, affinity: Hint, reusable: Reusable) -> int:
        best = affinity
        if best.mask is None:
            found = calculate_hints(state, wanted, reusable)
            if not found:
                nothing = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                raise unexpected(f"{_PREFIX} {nothing}")
            best = _best(found)
            if affinity.preferred and not best.preferred:
                raise unexpected(f"{_PREFIX} failed to find the default preferred hint")
        mask = best.mask or 0
        parts = [state.nodes[node] for node in nodes_of(mask)]
        if all(sum(part.free(kind) for part in parts) >= size for kind, size in wanted.items()):
            return mask
        return self._extended(state, wanted, Hint(mask, best.preferred), reusable)

    def _extended(self, state: MemoryState, wanted: Counts, small: Hint, reusable: Reusable) -> int:
        mask = small.mask or 0
        found = calculate_hints(state, wanted, reusable)
        around = {kind: [h for h in each or () if (h.mask or 0) & mask == mask] for kind, each in found.items()}
        if not around or not all(around.values()):
            raise unexpected(f"{_PREFIX} failed to find NUMA nodes to extend the current topology hint")
        best = _best(around)
        if small.preferred and not best.preferred:
            raise unexpected(f"{_PREFIX} failed to find the extended preferred hint")
        return best.mask or 0


def calculate_hints(state: MemoryState, wanted: Counts, reusable: Reusable) -> Hints:
    """One hint, the same for all kinds, for every set of NUMA nodes that has enough free; {} when there is none.

    Preferred are those of the size that could hold the request on an empty machine.
    """

    def could(nodes: Nodes) -> bool:
        parts = [state.nodes[node] for node in nodes]
        return all(sum(part.allocatable(kind) for part in parts) >= size for kind, size in wanted.items())

    def can(nodes: Nodes, mask: int) -> bool:
        parts = [state.nodes[node] for node in nodes]
        if not could(nodes) or (len(nodes) == 1 and len(parts[0].group) > 1) or _breaks_group(state, nodes):
            return False
        return all(sum(p.free(kind) for p in parts) + reusable.get((mask, kind), 0) >= n for kind, n in wanted.items())

    each = hints_by_nodes(state.nodes, could, can)
    return dict.fromkeys(wanted, each) if each else {}


def reusable_after(reusable: Reusable, container: ContainerAsk, blocks: Blocks) -> Reusable:
    """Memory that later containers of the pod can use again: an init container's memory, less what others have used."""
    found = dict(reusable)
    for block in blocks:
        key = (mask_of(block.nodes), block.kind)
        held = found.get(key, 0)
        found[key] = max(held, block.size) if container.kind == "init" else max(0, held - block.size)
    return found


def share_with_init(state: MemoryState, pod: PodAsk, container: ContainerAsk) -> MemoryState:
    """The state with the blocks of earlier init containers made smaller by what this container uses of them again, so
    that the blocks of a pod add up to what it has reserved."""
    for block in state.of(pod.uid, container.name) or ():
        size = block.size
        for earlier in pod.containers:
            if earlier.name == container.name:
                break
            if earlier.kind != "init":
                continue
            left, size = _used_again(state.of(pod.uid, earlier.name) or (), block, size)
            state = state.with_blocks(pod.uid, earlier.name, left) if left else state
    return state


def _used_again(blocks: Blocks, by: Block, size: int) -> tuple[Blocks, int]:
    found = []
    for block in blocks:
        same = block.kind == by.kind and set(block.nodes) == set(by.nodes)
        used = min(block.size, size) if same else 0
        size -= used
        found.append(msgspec.structs.replace(block, size=block.size - used))
    return tuple(found), size


def _hints_again(blocks: Blocks, wanted: Counts) -> Hints | None:
    """The nodes a container has already; None, no opinion, where it now asks for something else."""
    if len(blocks) != len(wanted) or any(wanted.get(block.kind) != block.size for block in blocks):
        return None
    return {block.kind: [Hint(mask_of(block.nodes), True)] for block in blocks}


def _best(found: Hints) -> Hint:
    """Preferred before not, then the narrowest; all kinds have the same hints."""
    each = found.get("memory") or next(iter(found.values())) or ()
    return min(each, key=lambda h: (not h.preferred, (h.mask or 0).bit_count(), h.mask or 0))


def _breaks_group(state: MemoryState, nodes: tuple[int, ...]) -> bool:
    """Tell whether several nodes would serve a request together, one of which is in use alone or in another group."""
    parts = [state.nodes[node] for node in nodes]
    return len(nodes) > 1 and any(p.assignments > 0 and tuple(sorted(p.group)) != nodes for p in parts)


Groups = Mapping[int, "MemoryNode"]


class Table(msgspec.Struct, frozen=True):
    """Bytes of one kind of memory on one NUMA node. allocatable = total − system_reserved = reserved + free."""

    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    reserved: int = 0
    free: int = 0

    def taking(self, size: int) -> Table:
        """The table after `size` bytes were reserved, negative to give them back."""
        return msgspec.structs.replace(self, reserved=self.reserved + size, free=self.free - size)


NOTHING = Table()


class MemoryNode(msgspec.Struct, frozen=True):
    """One NUMA node. `group`: the nodes it serves requests together with; itself alone while it serves them singly."""

    tables: Mapping[str, Table]
    group: tuple[int, ...]
    assignments: int = 0

    def free(self, kind: str) -> int:
        """Bytes of this kind that nobody has reserved."""
        return self.tables.get(kind, NOTHING).free

    def allocatable(self, kind: str) -> int:
        """Bytes of this kind on an empty machine."""
        return self.tables.get(kind, NOTHING).allocatable


class Block(msgspec.Struct, frozen=True):
    """Memory that a container has reserved: `size` bytes of one kind on these NUMA nodes together."""

    nodes: tuple[int, ...]
    kind: str
    size: int


Blocks = tuple[Block, ...]


class MemoryState(msgspec.Struct, frozen=True):
    """All NUMA nodes, and the blocks by pod uid and container."""

    nodes: Groups
    assigned: Mapping[str, Mapping[str, Blocks]] = msgspec.field(default_factory=dict)

    def of(self, uid: str, container: str) -> Blocks | None:
        """The blocks a container has already."""
        return self.assigned.get(uid, {}).get(container)

    def with_blocks(self, uid: str, container: str, blocks: Blocks) -> MemoryState:
        """The state with a container's blocks on record; the NUMA nodes are not touched."""
        own = {**self.assigned.get(uid, {}), container: blocks}
        return MemoryState(self.nodes, {**self.assigned, uid: own})

    def taking(self, block: Block, size: int) -> MemoryState:
        """The state after `size` bytes of the block were reserved on its nodes, the lowest first."""
        nodes = dict(self.nodes)
        for id_ in block.nodes:
            node = nodes[id_]
            got = min(size, max(0, node.free(block.kind)))
            size -= got
            nodes[id_] = MemoryNode(_moved(node, block.kind, got), block.nodes, node.assignments + 1)
        return MemoryState(nodes, self.assigned)

    def without(self, uid: str) -> MemoryState:
        """The state after a pod has gone."""
        nodes = dict(self.nodes)
        for blocks in self.assigned.get(uid, {}).values():
            for block in blocks:
                _give_back(nodes, block)
        return MemoryState(nodes, {pod: own for pod, own in self.assigned.items() if pod != uid})


NO_NODES = MemoryState({})


def first_state(nodes: Iterable[NUMANode], reserved: Mapping[int, Mapping[str, int]]) -> MemoryState:
    """The state of an empty machine. `reserved` is kubelet's `reservedMemory`: bytes by NUMA node and kind.

    Huge pages are taken out of the node's ordinary memory. ValueError where a reservation is larger than what is there.
    """
    found = {}
    for node in nodes:
        kept = reserved.get(node.id, {})
        pages = {f"hugepages-{Quantity.of(size, 'BinarySI')}": total for size, total in node.huge_pages}
        tables = {kind: _empty(node.id, kind, total, total, kept.get(kind, 0)) for kind, total in pages.items()}
        ordinary = node.memory - sum(pages.values())
        tables["memory"] = _empty(node.id, "memory", node.memory, ordinary, kept.get("memory", 0))
        found[node.id] = MemoryNode(tables, (node.id,))
    return MemoryState(found)


def _empty(node: int, kind: str, total: int, usable: int, reserved: int) -> Table:
    if not 0 <= reserved <= usable:
        raise ValueError(f"reservedMemory of NUMA node {node}: {reserved} bytes of {kind}, and there are {usable}")
    return Table(total, reserved, usable - reserved, 0, usable - reserved)


def _moved(node: MemoryNode, kind: str, size: int) -> Mapping[str, Table]:
    return {**node.tables, kind: node.tables[kind].taking(size)} if size else node.tables


def _give_back(nodes: dict[int, MemoryNode], block: Block) -> None:
    size = block.size
    for id_ in block.nodes:
        node = nodes[id_]
        got = min(size, node.tables.get(block.kind, NOTHING).reserved)
        size -= got
        left = node.assignments - 1
        nodes[id_] = MemoryNode(_moved(node, block.kind, -got), node.group if left else (id_,), left)
