"""Evictions where the cluster is a folder."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from koordlite.changes.eviction import EvictPod
from koordlite.kube.folder.published import FILE, EvictionRecord
from koordlite.model.errors import EvictionRefused

POD = "kind: Pod\nmetadata: {name: p, namespace: d, uid: u1}\nspec: {nodeName: n1}\n"


def wanted(uid: str = "u1") -> EvictPod:
    return EvictPod("d", "p", uid, "memory is short")


def test_an_eviction_is_recorded_and_the_pod_shows_that_it_goes(desk: Any, tmp_path: Path) -> None:
    desk.write("pod.yaml", POD)
    cluster = desk.cluster(published=tmp_path / "out")
    assert cluster.view().pods[0].metadata.deletion_timestamp is None
    cluster.evict(wanted())
    (pod,) = cluster.view().pods
    assert pod.metadata.deletion_timestamp is not None
    assert cluster.view().pods[0] is pod
    (record,) = json.loads((tmp_path / "out" / FILE).read_text())["items"]
    assert record["kind"] == "Eviction"
    assert record["metadata"]["name"] == "p"
    assert record["metadata"]["annotations"] == {"koordlite.io/eviction-reason": "memory is short"}
    assert record["deleteOptions"] == {"preconditions": {"uid": "u1"}}


def test_a_pod_that_comes_back_under_another_uid_is_another_pod(desk: Any) -> None:
    desk.write("pod.yaml", POD)
    cluster = desk.cluster()
    cluster.evict(wanted("u0"))
    assert cluster.view().pods[0].metadata.deletion_timestamp is None


def test_records_of_earlier_runs_stay_and_one_pod_is_recorded_once(tmp_path: Path) -> None:
    for uid in ("u1", "u2"):
        record = EvictionRecord(tmp_path)
        record.add(wanted(uid), taken_at="2026-01-01T00:00:00Z")
        record.add(wanted(uid), taken_at="2026-01-01T00:00:01Z")
    found = json.loads((tmp_path / FILE).read_text())["items"]
    assert [item["deleteOptions"]["preconditions"]["uid"] for item in found] == ["u1", "u2"]


def test_a_record_that_cannot_be_read_refuses_evictions(desk: Any, tmp_path: Path) -> None:
    desk.write("pod.yaml", POD)
    (tmp_path / FILE).write_text("{")
    cluster = desk.cluster(published=tmp_path)
    with pytest.raises(EvictionRefused, match="until then no pod is evicted"):
        cluster.evict(wanted())
    assert cluster.view().pods[0].metadata.deletion_timestamp is None


def test_a_record_that_cannot_be_written_is_no_eviction(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = EvictionRecord(tmp_path / "file")
    with pytest.raises(OSError) as caught:
        record.add(wanted(), taken_at="2026-01-01T00:00:00Z")
    assert caught.value.errno in (errno.EEXIST, errno.ENOTDIR)
