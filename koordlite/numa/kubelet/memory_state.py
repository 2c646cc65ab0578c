"""The memory manager's books: what each NUMA node has of every kind of memory, and who has reserved it.

Source: kubelet 1.36, `cm/memorymanager/state` and `policy_static.go`; the checkpoint is `memory_manager_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from koordlite.model.quantity import Quantity
from koordlite.model.topology import NUMANode

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
