"""What a recorded session does not show being made, made again: namespaces, objects, revisions, big bodies."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from apiserver import ApiServer
from apiserver.requests import Target
from apiserver.resources import Catalog

from koordlite.model.errors import InputError
from tests.conformance import apiserver_setups
from tests.conformance import apiserver_sightings as sightings
from tests.conformance.apiserver_symbols import Symbols

_BYTES = re.compile(r"(\d+) MiB \+ (\d+) bytes")
_REPEATED = re.compile(r"(.) repeated (\d+) times")
_COUNTS = re.compile(r"The disruption budget (\S+) needs (\d+) healthy pods and has (\d+) currently")


class Scene:
    """Sets up what is missing before an interaction."""

    def __init__(
        self, server: ApiServer, symbols: Symbols, recording: list[Any], *, kept: tuple[str, ...] = ()
    ) -> None:
        """`kept` are kinds whose status a controller of the server keeps."""
        self._kept = kept
        self._server, self._symbols, self._recording = server, symbols, recording
        self._catalog = Catalog()
        self._states = sightings.states(recording)
        self._made = {name for each in recording for name in sightings.created(each)}

    def begin(self) -> None:
        """Namespaces in which something is created, and the node that nodes ask about."""
        for each in self._recording:
            at = sightings.target_of(each)
            made_later = ("namespaces", "", at.namespace) in self._made
            if (
                at.namespace
                and each["response"]["status"] in (200, 201)
                and not made_later
                and sightings.has_content(each)
            ):
                self._load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": at.namespace}})
        self._earlier()
        if any("node-a" in each["request"]["path"] for each in self._recording):
            self._load({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})

    def _earlier(self) -> None:
        """Objects a table names, and those that watches show to have been there; revisions come later."""
        for item in [*apiserver_setups.of(self._recording), *self._seen_in_streams()]:
            self._load(item)

    def _older(self, interaction: Any) -> None:
        """Objects some answer shows at a revision below one that this answer shows: they were written before it."""
        numbers = [int(symbol[3:]) for symbol in sightings.revisions(interaction)]
        # A watch goes on while others write: only what is older than its first event was there before.
        newest = (min if "stream" in interaction["response"] else max)(numbers, default=0)
        for version, (item, source) in self._states.items():
            if int(version[3:]) < newest and version not in self._symbols.values:
                self._make(source, item, "state")

    def _seen_in_streams(self) -> Iterator[Any]:
        """Objects that were there when a watch began: its first event of them is no ADDED."""
        met = {sightings.key(item) for item, _ in self._states.values()}
        for event in (event for each in self._recording for event in sightings.events(each)):
            item = event["object"]
            if sightings.key(item) in met | self._made:
                continue
            met.add(sightings.key(item))
            before = sightings.original(item, sightings.DELETION if event["type"] == "MODIFIED" else sightings.READING)
            if event["type"] != "ADDED" and self._known(item) is None and self._is_served(before):
                yield before

    def before(self, interaction: Any) -> None:
        """Make what this interaction needs and no recorded one made."""
        for item in apiserver_setups.later(interaction):
            self._load(item)
        self._older(interaction)
        for item, seen in sightings.objects(interaction):
            self._make(interaction, item, seen)
        self._priority(interaction)
        self._target(interaction)
        self._counts(interaction)
        self._revisions(interaction)
        if sightings.is_expired(interaction):
            if "stream" in interaction["response"]:
                self._other_write(interaction)
            self._server.compact()

    def before_watch(self, inner: list[Any]) -> None:
        """Make what the interactions during a watch are about, before it begins."""
        for each in inner:
            self._target(each)

    def happened(self, event: Any) -> None:
        """A write by somebody else that a watch saw."""
        item = event["object"]
        known = self._known(item)
        if event["type"] == "DELETED":
            meta = item["metadata"]
            self._server.objects.remove(item["kind"], meta["name"], meta.get("namespace", ""))
        elif event["type"] in ("ADDED", "MODIFIED"):
            whole = sightings.original(item, sightings.READING)
            spec = {"spec": known["spec"]} if known and "..." in (item.get("spec") or {}) else {}
            self._load(whole | spec)

    def _is_served(self, item: Any) -> bool:
        return self._catalog.of_kind(item["apiVersion"], item["kind"]) is not None

    def adopt(self, interaction: Any) -> None:
        """What the answer shows was done, where the request is not sent because we do not serve it."""
        request, body = interaction["request"], interaction["response"].get("body")
        if interaction["response"]["status"] >= 300 or request["method"] == "GET" or "dryRun" in request["path"]:
            return
        at = sightings.target_of(interaction)
        resource = self._catalog.of(at.group, at.version, at.resource)
        if request["method"] == "DELETE" and not at.name and isinstance(body, dict):
            for item in body.get("items") or ():
                name = item if isinstance(item, str) else item["metadata"]["name"]
                self._server.objects.remove(body["kind"].removesuffix("List"), name, at.namespace)
        elif request["method"] == "DELETE" and resource is not None:
            self._server.objects.remove(resource.kind, at.name, at.namespace, api_version=resource.storage)
        elif isinstance(body, dict) and "name" in (body.get("metadata") or {}):
            whole = sightings.original(body, sightings.READING)
            self._load(whole, body["metadata"].get("resourceVersion", ""))

    def body(self, interaction: Any) -> Any:
        """The request's body, where the recording only describes it."""
        body = interaction["request"]["body"]
        if isinstance(body, str) and body.startswith("$ConfigMap"):
            found = _BYTES.search(body)
            assert found is not None
            text = "x" * (int(found[1]) * 2**20 + int(found[2]))
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"k": text}}
        if isinstance(body, str) and body.startswith("as the next one"):
            following = copy.deepcopy(self._recording[self._recording.index(interaction) + 1]["request"]["body"])
            following["metadata"].pop("annotations", None)
            return following
        if isinstance(body, dict) and isinstance(body.get("note"), str) and _REPEATED.match(body["note"]):
            found = _REPEATED.match(body["note"])
            assert found is not None
            return body | {"note": found[1] * int(found[2])}
        if "nanoseconds" in interaction["title"]:
            return {"spec": {"renewTime": "2026-01-01T00:00:00.000000000Z"}}
        return body

    def _make(self, interaction: Any, item: Any, seen: str) -> None:
        """Load an object the answer shows, if none of ours is in that state."""
        meta = item["metadata"]
        version = meta.get("resourceVersion", "")
        known = self._known(item)
        is_read = interaction["request"]["method"] == "GET" and seen == "state"
        if not version.startswith("$rv") or version in self._symbols.values:
            return
        if known is not None and item["kind"] in self._kept:
            return
        if known is not None and not is_read:
            if interaction["request"]["method"] == "DELETE" and _phase(known) != _phase(item):
                self._load(known | {"status": item["status"]})
        elif interaction["response"]["status"] != 201 and (
            known is None or known["metadata"]["resourceVersion"] in self._symbols.values.values()
        ):
            self._load(sightings.original(item, interaction), version if is_read else "")

    def _priority(self, interaction: Any) -> None:
        """The class a pod names."""
        sent, body = interaction["request"]["body"], interaction["response"].get("body")
        name = (sent.get("spec") or {}).get("priorityClassName") if isinstance(sent, dict) else None
        if name and isinstance(body, dict) and "priority" in (body.get("spec") or {}):
            head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
            self._load(head | {"value": body["spec"]["priority"]})

    def _known(self, item: Any) -> Any:
        meta = item["metadata"]
        name = self._symbols.names.get(meta["name"], meta["name"])
        try:
            return self._server.objects.get(
                item["kind"], name, meta.get("namespace", ""), api_version=item["apiVersion"]
            )
        except InputError:  # A kind that is not served yet has no objects.
            return None

    def _target(self, interaction: Any) -> None:
        """The object a refused write, or an eviction, was about."""
        at = sightings.target_of(interaction)
        status = interaction["response"]["status"]
        resource = self._catalog.of(at.group, at.version, at.resource)
        if (at.resource, at.namespace, at.name) in self._made:
            return
        if not at.name or resource is None or status in (404, 403, 401, 405) or not resource.verbs:
            return
        if self._server.objects.get(resource.kind, at.name, at.namespace, api_version=resource.storage) is not None:
            return
        if interaction["request"]["method"] in ("PUT", "PATCH") and status == 201:
            return
        seen = (item for each in self._recording for item in sightings.everything(each))
        shown = next((item for item in seen if sightings.is_named(item, resource.kind, at)), None)
        if shown is not None:
            shown = sightings.original(shown, interaction) | self._whole_spec(resource.kind, at)
            if at.subresource == "binding":
                shown = shown | {"spec": shown["spec"] | {"nodeName": ""}, "status": {}}
            self._load(shown)
        elif resource.kind == "Pod":
            self._load(apiserver_setups.pod(at, interaction["title"]))

    def _whole_spec(self, kind: str, at: Target) -> Any:
        """The spec as all answers together show it; each shows some fields only."""
        found = [
            item
            for each in self._recording
            for item in sightings.everything(each)
            if sightings.is_named(item, kind, at)
        ]
        specs = [sightings.original(item, sightings.DELETION).get("spec") or {} for item in reversed(found)]
        whole = {key: value for spec in specs for key, value in spec.items()}
        return {"spec": whole} if whole else {}

    def _counts(self, interaction: Any) -> None:
        """A budget's status, which was set by hand."""
        body = interaction["response"].get("body")
        text = str((body.get("details") or {}).get("causes", "")) if isinstance(body, dict) else ""
        at = sightings.target_of(interaction)
        if at.subresource != "eviction" or self._kept:
            return
        for note in apiserver_setups.budgets(interaction, at):
            self._load(note)
        found = _COUNTS.search(text)
        budget = found and self._server.objects.get("PodDisruptionBudget", found[1], at.namespace)
        if found and budget and budget["status"]["currentHealthy"] != int(found[3]):
            counts = budget["status"] | {"desiredHealthy": int(found[2]), "currentHealthy": int(found[3])}
            self._load(budget | {"status": counts})

    def _revisions(self, interaction: Any) -> None:
        """Revisions of a request that were made by others, and list revisions that nothing recorded made."""
        for symbol in sightings.REVISION.findall(interaction["request"]["path"]):
            if symbol not in self._symbols.values:
                self._symbols.values[symbol] = str(self._now(interaction, symbol))
        body = interaction["response"].get("body")
        is_list = isinstance(body, dict) and ("items" in body or "rows" in body or set(body) == {"metadata", "..."})
        head = (
            str(body["metadata"].get("resourceVersion", ""))
            if is_list and isinstance(body.get("metadata"), dict)
            else ""
        )
        if head.startswith("$rv") and head not in self._symbols.values and not self._is_newest(head):
            self._other_write(interaction)

    def _is_newest(self, symbol: str) -> bool:
        """Whether nothing was written since the newest bound revision below the symbol."""
        known = [int(value) for name, value in self._symbols.values.items() if name.startswith("$rv")]
        return not known or self._server.revision > max(known)

    def _now(self, interaction: Any, symbol: str) -> int:
        later = self._recording[self._recording.index(interaction) :]
        numbers = [int(each[3:]) for one in later for each in sightings.REVISION.findall(str(one["response"]))]
        if max(numbers, default=0) > int(symbol[3:]):
            if not self._is_newest(symbol):
                self._other_write(interaction)
            return self._server.revision
        return self._server.revision + 1000

    def _other_write(self, interaction: Any) -> None:
        count = str(self._server.revision)
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": count}}
        self._load(lease | {"metadata": {"name": "other", "namespace": "kube-system"}})

    def _load(self, item: Any, symbol: str = "") -> None:
        item = self._symbols.said(_without_revision(item))
        written = self._server.objects.load(item)[0]
        if symbol:
            self._symbols.bind(symbol, written["metadata"]["resourceVersion"], strict=True)


def _phase(item: Any) -> Any:
    return (item.get("status") or {}).get("phase")


def _without_revision(item: Any) -> Any:
    meta = {key: value for key, value in item["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return item | {"metadata": meta}
