"""Helpers of the sandbox's tests: pods in one line, writes as errno words, fresh cgroup trees."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from kernel_resctrl import KernelSandbox

from koordlite.lab.machine.tree import Tree
from koordlite.model.wire import objects

Attempt = Callable[[Tree, str, str], str]
MakePod = Callable[..., objects.PodObject]


@pytest.fixture
def attempt() -> Attempt:
    """Write and say what the kernel answered: `ok` or the name of the errno."""

    def write(files: Tree, path: str, text: str) -> str:
        try:
            files.write(path, text.encode())
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "ok"

    return write


@pytest.fixture
def make_pod() -> MakePod:
    """A pod with one container: `make_pod("web", requests={"cpu": "4"}, cpu="greedy")`."""

    def make(
        name: str, *, containers: int = 1, labels: dict[str, str] | None = None, **more: object
    ) -> objects.PodObject:
        notes = {f"sandbox.koordlite.io/{key}": str(more.pop(key)) for key in list(more) if key in _NOTES}
        notes = {key.replace("_", "-"): value for key, value in notes.items()}
        resources = objects.Resources(requests=more.get("requests"), limits=more.get("limits"))  # type: ignore[arg-type]
        return objects.PodObject(
            metadata=objects.ObjectMeta(name=name, namespace="d", uid=f"uid-{name}", annotations=notes, labels=labels),
            spec=objects.PodSpec(
                containers=tuple(objects.Container(name=f"c{n}", resources=resources) for n in range(containers))
            ),
            status=objects.PodStatus(phase="Running"),
        )

    return make


_NOTES = ("cpu", "memory", "disk_read")


@pytest.fixture
def v1() -> KernelSandbox:
    """4 CPUs, cgroup v1."""
    return KernelSandbox("small")


@pytest.fixture
def v2() -> KernelSandbox:
    """32 CPUs, cgroup v2."""
    return KernelSandbox("intel-2s-ht")
