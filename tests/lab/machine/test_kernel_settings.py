"""Settings of the whole kernel, and what the OOM killer reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.kernel_settings import FEATURES, OLD_FEATURES
from koordlite.lab.machine.tree import Tree
from koordlite.model.wire import objects

Attempt = Callable[[Tree, str, str], str]
MakePod = Callable[..., objects.PodObject]


@pytest.mark.parametrize(
    ("path", "fits", "refused"),
    [
        pytest.param("/proc/sys/vm/min_free_kbytes", "1048576", "-1", id="min_free_kbytes"),
        pytest.param("/proc/sys/vm/watermark_scale_factor", "3000", "3001", id="watermark_scale_factor"),
    ],
)
def test_sysctls(v2: Sandbox, attempt: Attempt, path: str, fits: str, refused: str) -> None:
    assert attempt(v2.files, path, refused) == "EINVAL"
    assert attempt(v2.files, path, f"{fits}\n") == "ok"
    assert v2.files.read(path) == f"{fits}\n".encode()


def test_switches_of_the_anolis_kernel_are_nowhere_else(v2: Sandbox, attempt: Attempt) -> None:
    path = "/proc/sys/kernel/sched_group_identity_enabled"
    assert attempt(v2.files, path, "1") == "ENOENT"
    assert attempt(Sandbox("anolis").files, path, "1") == "ok"


@pytest.mark.parametrize(("shape", "path"), [("small", FEATURES), ("anolis", OLD_FEATURES)])
def test_a_scheduler_feature_is_switched_by_its_name(attempt: Attempt, shape: str, path: str) -> None:
    files = Sandbox(shape).files
    assert attempt(files, path, "NO_UTIL_EST\n") == "ok"
    assert b"NO_UTIL_EST" in files.read(path).split()
    assert attempt(files, path, "UTIL_EST\n") == "ok"
    assert b"UTIL_EST" in files.read(path).split()
    assert attempt(files, path, "NO_SUCH_THING\n") == "EINVAL"


@pytest.mark.parametrize(
    ("resources", "score"),
    [
        pytest.param({}, 1000, id="best effort dies first"),
        pytest.param({"requests": {"cpu": "1", "memory": "2Gi"}}, 750, id="burstable by its part of the machine"),
        pytest.param({"requests": {"cpu": "1"}}, 999, id="burstable without memory still after best effort"),
        pytest.param(
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
            -997,
            id="guaranteed dies last",
        ),
    ],
)
def test_kubelet_scores_its_containers(
    v1: Sandbox, attempt: Attempt, make_pod: MakePod, resources: dict[str, dict[str, str]], score: int
) -> None:
    v1.sync([make_pod("a", cpu="1", **resources)])
    running = v1.kubelet.running["uid-a"]
    path = f"/proc/{running.workloads[0].process.pid}/oom_score_adj"
    assert v1.files.read(path) == f"{score}\n".encode()
    assert running.pause is not None
    assert v1.files.read(f"/proc/{running.pause.pid}/oom_score_adj") == b"-998\n"
    assert [attempt(v1.files, path, text) for text in ("-1000", "1001")] == ["ok", "EINVAL"]
