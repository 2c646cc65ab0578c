"""Large pictures: lists read object by object, pods made small, and lists of an API server in parts."""

from __future__ import annotations

import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descheduler.snapshot import assemble, cluster, files, pack, stream
from descheduler.snapshot.pack import Packer
from koordlite.kube.client.answers import ApiError
from koordlite.kube.client.paging import Page
from koordlite.model import keys
from koordlite.model.errors import InputError
from koordlite.model.pod import pod_reader
from koordlite.model.pod.values import Pod
from koordlite.model.wire import objects as wire

TEXT = st.text(alphabet='ab{}[],":\\ \n', max_size=8)
OBJECTS = st.lists(
    st.fixed_dictionaries(
        {"metadata": st.dictionaries(TEXT, st.lists(st.dictionaries(TEXT, TEXT, max_size=3), max_size=3), max_size=3)}
    ),
    min_size=1,
    max_size=6,
)
FORMS = {"compact": {"separators": (",", ":")}, "spaced": {}, "indented": {"indent": 4}}


def pieces(text: str) -> list[stream.Piece[Any]]:
    return list(stream.items(io.BytesIO(text.encode()), "file", msgspec.json.decode))


def in_pieces(text: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    with monkeypatch.context() as patch:
        patch.setattr(stream, "_HEAD_BYTES", chunk)
        patch.setattr(stream, "_CHUNK_BYTES", chunk)
        found = pieces(text)
    assert [json.loads(piece.text) for piece in found] == [piece.made for piece in found]
    return [piece.made for piece in found]


@given(objects=OBJECTS, form=st.sampled_from(sorted(FORMS)), chunk=st.integers(128, 500))
def test_pieces_are_the_items_whatever_they_hold(objects: list[Any], form: str, chunk: int) -> None:
    document = {"kind": "PodList", "items": objects, "metadata": {"x": "]}"}}
    text = json.dumps(document, **FORMS[form])  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert in_pieces(text, chunk, monkeypatch) == objects


@given(
    objects=st.lists(
        st.dictionaries(TEXT, st.lists(st.dictionaries(TEXT, TEXT, max_size=3), max_size=3), min_size=1, max_size=3),
        min_size=1,
        max_size=6,
    ),
    form=st.sampled_from(sorted(FORMS)),
    chunk=st.integers(128, 500),
    limit=st.integers(1, 2000),
)
def test_objects_may_begin_with_different_keys(objects: list[Any], form: str, chunk: int, limit: int) -> None:
    text = json.dumps({"kind": "PodList", "items": objects, "metadata": {"x": "]}"}}, **FORMS[form])  # type: ignore[arg-type]
    if stream._HEAD.search(text.encode()[:chunk]) is None:
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(stream, "_OBJECT_BYTES", limit)
        assert in_pieces(text, chunk, monkeypatch) == objects


def plain(read: files.Objects) -> dict[str, list[tuple[tuple[str, str], Any]]]:
    """What was read as plain data: the key of a pod's template is equal to itself alone."""
    return {
        kind: [(name, msgspec.to_builtins(obj)) for name, obj in found.items()] for kind, found in read.by_kind.items()
    }


def test_a_large_file_whose_objects_begin_differently_gives_the_same_picture(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = [{"kind": "Pod", "apiVersion": "v1"}, {"apiVersion": "v1", "kind": "Pod"}, {"spec": {}, "kind": "Pod"}]
    items = [{**heads[i % 3], "metadata": {"name": f"p{i}", "labels": {"é": "ü"}}} for i in range(50)]
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"kind": "List", "items": items}, ensure_ascii=False, indent=2), encoding="utf-8")
    whole = files.read([str(path)])
    monkeypatch.setattr(stream, "LARGE_BYTES", 1000)
    monkeypatch.setattr(stream, "_CHUNK_BYTES", 101)
    read = files.read([str(path)])
    assert plain(read) == plain(whole)
    assert (len(read.by_kind["Pod"]), read.repeated.total()) == (50, 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param('{"items": [{"a": 1}, {"b": 2} {"a": 1}]}', "neither another object", id="no comma"),
        pytest.param('{"items": [{"a": 1}, {"b": NaN}]}', "invalid character", id="no JSON"),
        pytest.param('{"items": [{"a": 1}, {"b": 1}, ]}', "Expecting value", id="a comma too many"),
        pytest.param('{"items": [{"a": 1}, {"b": ' + "[" * 100_000, "recursion", id="nested without end"),
    ],
)
def test_an_object_that_is_no_json_is_named(text: str, why: str) -> None:
    with pytest.raises(InputError, match=f"the object that begins .* cannot be read: .*{why}"):
        pieces(text)


def test_a_list_that_was_cut_off_is_a_problem() -> None:
    text = json.dumps({"kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]})
    with pytest.raises(InputError, match="cut off"):
        pieces(text[:-20])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"kind": "PodList", "items": []}, id="an empty list"),
        pytest.param({"kind": "Pod", "metadata": {"name": "p"}}, id="one object"),
    ],
)
def test_what_is_no_long_list_is_left_to_the_other_reader(document: Any) -> None:
    assert pieces(json.dumps(document)) == []


@pytest.mark.parametrize("last", [False, True], ids=["kind first", "kind last, and objects without"])
def test_a_large_file_gives_the_same_picture(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, last: bool
) -> None:
    items = [{"metadata": {"name": f"p{i}", "namespace": "d"}, "spec": {"nodeName": "n"}} for i in range(50)]
    document: dict[str, Any] = {"items": items, "kind": "PodList"} if last else {"kind": "PodList", "items": items}
    path = tmp_path / "pods.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    whole = files.read([str(path)])
    monkeypatch.setattr(stream, "LARGE_BYTES", 1)
    assert plain(files.read([str(path)])) == plain(whole)
    assert len(whole.by_kind["Pod"]) == 50


PEAK = """
import resource, sys
from descheduler.snapshot import files
read = files.read(sys.argv[1:])
print(len(read.by_kind["Pod"]), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
"""


def test_a_list_that_comes_through_a_pipe_takes_no_more_memory_than_one_in_a_file(tmp_path: pathlib.Path) -> None:
    dropped = [{"manager": "x", "fieldsV1": {f"f:{i}": {} for i in range(1_000)}}]
    path, pods = tmp_path / "pods.json", 5_000
    with path.open("w", encoding="utf-8") as file:
        file.write('{"apiVersion":"v1","kind":"List","items":[')
        for number in range(pods):
            meta = {"name": f"p{number}", "namespace": "d", "managedFields": dropped}
            item = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"nodeName": "n"}}
            file.write(f"{',' if number else ''}{json.dumps(item, separators=(',', ':'))}")
        file.write("]}")
    assert path.stat().st_size > 48 << 20
    with path.open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as cat:
        piped = subprocess.check_output([sys.executable, "-c", PEAK, "-"], stdin=cat.stdout, text=True)
    count, peak = map(int, piped.split())
    _, of_file = map(int, subprocess.check_output([sys.executable, "-c", PEAK, str(path)], text=True).split())
    assert count == pods
    assert peak < of_file + 8, f"{peak} MiB by a pipe, {of_file} MiB from the file"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        pytest.param(json.dumps({"items": [{"metadata": {"name": "n"}}] * 40, "kind": "NodeList"}), 1, id="kind last"),
        pytest.param(json.dumps({"kind": "Node", "metadata": {"name": "n" * 300}}), 1, id="one object"),
        pytest.param("kind: Node\nmetadata:\n  name: n\n" + "# more\n" * 99, 1, id="YAML"),
    ],
)
def test_what_is_no_list_comes_whole_through_a_pipe(monkeypatch: pytest.MonkeyPatch, text: str, kinds: int) -> None:
    monkeypatch.setattr(stream, "_HEAD_BYTES", 100)
    monkeypatch.setattr(stream, "_CHUNK_BYTES", 100)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(text.encode())
    try:
        assert len(files.read([f"/dev/fd/{reading}"]).by_kind["Node"]) == kinds
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"kind": "Pod", "metadata": {"name": 5}, "x": [{"kind": ""}, {"kind": ""}]}, id="a wrong type"),
        pytest.param({"kind": 5, "metadata": {}, "x": [{"kind": ""}, {"kind": ""}]}, id="a kind that is no text"),
        pytest.param({"kind": "Lease", "metadata": {"name": "x"}, "spec": {"nodeName": 5}}, id="another kind"),
        pytest.param({"kind": "Node", "metadata": {"name": "n", "labels": {}}, "spec": {"taints": []}}, id="a node"),
    ],
)
def test_a_large_list_with_something_odd_gives_the_same_picture(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    pods = [{"kind": "Pod", "metadata": {"name": f"p{i}"}, "spec": {}} for i in range(3)]
    for at in range(4):
        document = {"kind": "List", "items": [*pods[:at], broken, *pods[at:]]}
        path = tmp_path / f"list-{at}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        whole = read_or_refused(path)
        with monkeypatch.context() as patch:
            patch.setattr(stream, "LARGE_BYTES", 1)
            assert read_or_refused(path) == whole


def read_or_refused(path: pathlib.Path) -> Any:
    try:
        objects = files.read([str(path)])
    except InputError as error:
        return [(problem.field, problem.why) for problem in error.problems]
    return plain(objects), objects.problems, objects.ignored


def decoded(obj: Any) -> wire.PodObject:
    return msgspec.json.decode(msgspec.json.encode(obj), type=wire.PodObject)


def test_equal_pods_share_what_is_equal(cluster: Any) -> None:
    packer = Packer()
    first, second = (packer.small(decoded(cluster.pod(name, "a", owner="app"))) for name in ("p", "q"))
    assert first.spec.containers is second.spec.containers
    assert first.metadata.owner_references is second.metadata.owner_references
    assert packer.model(first, None).requests is packer.model(second, None).requests
    assert (packer.model(second, None).name, packer.model(second, None).uid) == ("q", "uid-q")


def test_a_state_that_is_only_a_name_is_not_taken_for_a_container_that_is_only_a_name(cluster: Any) -> None:
    stated, plain = cluster.pod("stated", "a"), cluster.pod("plain", "a")
    stated["status"]["containerStatuses"] = [{"name": "main"}]
    plain["spec"]["containers"] = [{"name": "main"}]
    packer = Packer()
    packer.small(decoded(stated))
    small = packer.small(decoded(plain))
    assert small.spec.containers == (wire.Container(name="main"),)
    assert packer.model(small, None) == alone(decoded(plain))


@pytest.mark.parametrize("qos", ["LSR", "BE", ""])
@pytest.mark.parametrize("priority", [None, 5])
def test_a_shared_value_is_what_the_reader_makes_of_the_pod(cluster: Any, qos: str, priority: int | None) -> None:
    packer = Packer()
    for name in ("p", "q"):
        obj = decoded(cluster.pod(name, "a", labels={"koordinator.sh/qosClass": qos}))
        read = pod_reader.from_wire(obj)
        value = packer.model(packer.small(obj), priority)
        assert (value.qos_class, value.requests, value.kube_qos) == (read.qos_class, read.requests, read.kube_qos)
        assert (value.key, value.uid, value.priority) == (read.key, read.uid, priority)


KEYS = sorted({text for name, text in vars(keys).items() if name.isupper() and isinstance(text, str) and "/" in text})
TEXTS = (
    "LSR",
    "BE",
    "1",
    "true",
    '{"cpuset":"0-1"}',
    '{"numaTopologyPolicy":"Restricted"}',
    '{"preferredCPUBindPolicy":"SpreadByPCPUs"}',
)


@pytest.mark.parametrize("key", KEYS)
def test_a_pod_with_a_label_or_note_of_its_own_is_read_as_if_it_were_alone(cluster: Any, key: str) -> None:
    packer = Packer()
    plain = cluster.pod("plain", "a", labels={"app": "x"})
    packer.model(packer.small(decoded(plain)), None)
    for number, (part, text) in enumerate((part, text) for part in ("labels", "annotations") for text in TEXTS):
        meta = {**plain["metadata"], "name": f"p{number}", part: {key: text}}
        obj = decoded({**plain, "metadata": meta})
        assert packer.model(packer.small(obj), obj.spec.priority) == alone(obj)


def test_notes_that_no_rule_reads_are_left_out(cluster: Any) -> None:
    pod = cluster.pod("p", "a")
    kept = {"descheduler.alpha.kubernetes.io/evict": "true", "controller.kubernetes.io/pod-deletion-cost": "5"}
    others = (
        "kubectl.kubernetes.io/last-applied-configuration",
        "cni.projectcalico.org/podIP",
        "notkubernetes.io/x",
        "x",
    )
    pod["metadata"]["annotations"] = {**kept, **dict.fromkeys(others, "long")}
    assert Packer().small(decoded(pod)).metadata.annotations == kept


def alone(obj: wire.PodObject) -> Pod:
    return msgspec.structs.replace(pod_reader.from_wire(obj), containers=())


@pytest.mark.parametrize("lasting", [False, True])
def test_what_was_forgotten_is_only_not_shared(cluster: Any, monkeypatch: pytest.MonkeyPatch, lasting: bool) -> None:
    for limit in ("_KEPT", "_KEPT_LASTING", "_KEPT_PARTS"):
        monkeypatch.setattr(pack, limit, 1)
    packer = Packer(lasting=lasting)
    pods = [cluster.pod(f"p{i}", "a", cpu=f"{i % 3 + 1}", labels={"app": f"a{i % 2}"}) for i in range(12)]
    kept = [packer.model(packer.small(decoded(one)), None) for one in pods]
    assert kept == [alone(decoded(one)) for one in pods]


def test_problems_name_each_pod_they_are_found_in(cluster: Any) -> None:
    cluster.node("a")
    for name in ("p", "q"):
        cluster.pod(name, "a", cpu="many")
    assert {problem.object for problem in cluster.view().problems} >= {"pod/default/p", "pod/default/q"}


def test_volumes_and_states_that_nobody_asks_for_are_dropped(cluster: Any) -> None:
    obj = cluster.pod("p", "a")
    obj["spec"]["volumes"] = [{"name": "token", "projected": {}}, {"name": "data", "emptyDir": {}}]
    state = {"name": "main", "containerID": "c://1", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    obj["status"]["containerStatuses"] = [{**state, "restartCount": 3}]
    small = Packer().small(decoded(obj))
    assert [volume.name for volume in small.spec.volumes or ()] == ["data"]
    (kept,) = small.status.container_statuses or ()
    assert (kept.container_id, kept.state, kept.restart_count) == (None, {"running": {}}, 3)


class Server:
    """Lists in parts, by path; an exception is raised in its turn."""

    url = "https://cluster"

    def __init__(self, **lists: list[Any]) -> None:
        self.lists = {f"/api/v1/{kind}": pages for kind, pages in lists.items()}

    def listed(self, path: str) -> Iterator[Page]:
        last = ""
        for page in self.lists.get(path, [ApiError(404, "NotFound", "no such resource")]):
            if isinstance(page, Exception):
                raise page
            version, names = page
            items = [msgspec.Raw(json.dumps({"metadata": {"name": name}}).encode()) for name in names]
            yield Page(version, items, restarted=last not in ("", version))
            last = version


def test_lists_in_parts_become_one_picture() -> None:
    objects = cluster.read(Server(nodes=[("1", ["a", "b"]), ("1", ["c"])], pods=[("2", ["p"])]))
    assert [node.metadata.name for node in objects.of("Node")] == ["a", "b", "c"]
    assert list(assemble.view(objects, "2026-01-01T00:00:00Z").nodes) == ["a", "b", "c"]


def test_a_list_that_began_again_forgets_the_older_state() -> None:
    objects = cluster.read(Server(nodes=[("1", ["old", "a"]), ("5", ["a", "b"])], pods=[("2", [])]))
    assert [node.metadata.name for node in objects.of("Node")] == ["a", "b"]
    assert not objects.repeated["Node"]


def test_without_nodes_or_pods_there_is_no_picture() -> None:
    with pytest.raises(ApiError, match="403"):
        cluster.read(Server(nodes=[ApiError(403, "Forbidden", "may not list nodes")]))


def test_what_may_not_be_listed_is_told_and_a_missing_crd_is_not() -> None:
    refused = ApiError(403, "Forbidden", "may not list namespaces")
    objects = cluster.read(Server(nodes=[("1", ["a"])], pods=[("1", [])], namespaces=[refused]))
    told = [problem for problem in objects.problems if "/api/v1/namespaces" in problem.object]
    assert "may not list namespaces" in str(told[0])
    assert not any("noderesourcetopologies" in problem.object for problem in objects.problems)
