"""From a request to its answer: who, may they, what is it, do it (the order of a real API server's filters)."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apiserver import (
    authorizer,
    bindings,
    budgets,
    conversion,
    definitions,
    deletions,
    discovery,
    evictions,
    negotiation,
    patches,
    reads,
    reviews,
    status,
    tables,
    watches,
    writes,
)
from apiserver.cluster import Cluster, Writing
from apiserver.negotiation import Form
from apiserver.requests import Request, Target, judged, target
from apiserver.resources import Resource
from apiserver.store import Object
from apiserver.users import ADMIN, ANONYMOUS, User

LOG = logging.getLogger(__name__)
TEXT = "text/plain; charset=utf-8"
_MANAGER_LIMIT = 128
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_METHODS: dict[str, frozenset[str]] = {
    "": frozenset({"GET", "POST", "DELETE"}),
    "name": frozenset({"GET", "PUT", "PATCH", "DELETE"}),
    "status": frozenset({"GET", "PUT", "PATCH"}),
    "finalize": frozenset({"PUT"}),
    "binding": frozenset({"POST"}),
    "eviction": frozenset({"POST"}),
    "log": frozenset({"GET"}),
}
_DEPRECATED = (
    "policy/v1beta1 PodDisruptionBudget is deprecated in v1.21+, unavailable in v1.25+; "
    "use policy/v1 PodDisruptionBudget"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer."""

    status: int
    body: bytes
    media: str = negotiation.JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Stream:
    """A watch: lines until it ends; None now and then, for looking whether the client is still there."""

    lines: Iterator[bytes | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How the server behaves."""

    tokens: Mapping[str, User] = dataclasses.field(default_factory=dict)
    """Bearer tokens; without any, everybody is an administrator."""
    controllers: bool = False
    """Keep disruption budgets and remove terminating pods when their time is over."""
    establish_seconds: float = 0.0
    """How long a new CustomResourceDefinition takes until its kind is served."""
    address: str = ""


class Api:
    """Answers requests; `stopped` ends watches."""

    def __init__(self, cluster: Cluster, settings: Settings, stopped: threading.Event) -> None:
        self.cluster, self._settings, self._stopped = cluster, settings, stopped
        self._authorizer = authorizer.Authorizer(cluster.store)
        self._controller = budgets.Controller(cluster)

    def answer(self, request: Request) -> Answer | Stream:
        """The answer, whatever happens: refusals are answers too."""
        try:
            return self._routed(request)
        except status.PlainNotFound:
            return Answer(404, b"404 page not found\n", TEXT)
        except status.Refused as refused:
            media = negotiation.YAML if request.headers.get("accept") == negotiation.YAML else negotiation.JSON
            return Answer(refused.code, negotiation.encoded(refused.body, media), media, refused.headers)
        except Exception as error:
            # A request that breaks a handler harms nobody but its client, who must not take it for a cut connection.
            LOG.exception("%s %s broke its handler", request.method, request.path)
            return Answer(500, negotiation.encoded(status.broken(error).body, negotiation.JSON))

    def _routed(self, request: Request) -> Answer | Stream:
        user = self._user(request)
        request = dataclasses.replace(request, user=user)
        at = target(request)
        with self.cluster.store.lock:
            self.cluster.do_due_work()
            self._run_controllers()
            self._authorize(user, at, request)
            if not at.resource:
                return self._document(request)
            resource = self._resource(at)
            self._check_method(resource, at, request)
            return self._handled(resource, at, request)

    def _user(self, request: Request) -> User:
        tokens = self._settings.tokens
        bearer = request.bearer
        if bearer and tokens and bearer not in tokens:
            raise status.Refused(401, "Unauthorized", reason="Unauthorized")
        known = tokens[bearer].authenticated() if bearer in tokens else ANONYMOUS if tokens else ADMIN
        wanted = request.headers.get("impersonate-user")
        if not wanted:
            return known
        at = Target("impersonate", resource="users", name=wanted)
        if not self._authorizer.judge(known, at).allowed:
            raise authorizer.denied(known, at)
        groups = tuple(filter(None, [request.headers.get("impersonate-group")]))
        return User(wanted, groups) if groups else User(wanted).authenticated()

    def _authorize(self, user: User, at: Target, request: Request) -> None:
        if not at.resource:
            if not self._authorizer.judge_path(user, request.path, at.verb).allowed:
                raise authorizer.denied_path(user, request.path, at.verb)
            return
        named = judged(at, request)
        verdict = self._authorizer.judge(user, named)
        if not verdict.allowed:
            raise authorizer.denied(user, named, verdict.reason)

    def _document(self, request: Request) -> Answer:
        found = discovery.document(request.path, self.cluster.catalog, self._settings.address)
        if found is None:
            raise status.PlainNotFound
        if isinstance(found, str):
            word = request.path.strip("/").partition("/")[0]
            text = discovery.verbose_health(word) if "verbose" in request.query else found
            return Answer(200, text.encode(), TEXT)
        return Answer(200, negotiation.encoded(found, negotiation.JSON))

    def _resource(self, at: Target) -> Resource:
        if at.group and at.group not in self.cluster.catalog.groups():
            raise status.PlainNotFound
        resource = self.cluster.catalog.of(at.group, at.version, at.resource)
        if resource is None or at.extra or (at.namespace and not resource.namespaced):
            raise status.no_resource()
        if at.subresource and at.subresource not in resource.subresources:
            raise status.not_found(resource, at.name) if resource.custom else status.no_resource()
        return resource

    def _check_method(self, resource: Resource, at: Target, request: Request) -> None:
        allowed = _METHODS[at.subresource or ("name" if at.name else "")]
        if resource.verbs == ("create",):
            allowed = frozenset({"POST"})
        scopeless = resource.namespaced and not at.namespace
        if at.verb == "deletecollection" and at.verb not in resource.verbs:
            raise status.not_allowed()
        if request.method not in allowed or (scopeless and request.method != "GET"):
            raise status.not_allowed()
        if scopeless and at.name and at.verb != "watch":
            raise status.no_resource()

    def _handled(self, resource: Resource, at: Target, request: Request) -> Answer | Stream:
        streams = at.verb == "watch"
        form = negotiation.form(request, streams=streams)
        if streams:
            return self._watch(resource, at, request, form)
        if at.verb in ("get", "list"):
            return self._read(resource, at, request, form)
        return self._written(resource, at, request, form)

    def _watch(self, resource: Resource, at: Target, request: Request, form: Form) -> Stream:
        watch = watches.asked(self.cluster, resource, at, request)

        def shown(item: Object) -> Object:
            return self._transformed(item, resource, form, request)

        events = watches.events(self.cluster, watch, shown, self._stopped.is_set)

        def lines() -> Iterator[bytes | None]:
            try:
                for event in events:
                    yield None if event is None else _line(*event)
            except Exception as error:
                LOG.exception("watch of %s broke", request.path)
                yield _line("ERROR", status.broken(error).body)

        return Stream(lines())

    def _read(self, resource: Resource, at: Target, request: Request, form: Form) -> Answer:
        if at.subresource == "log":
            return self._log(resource, at)
        if at.name:
            item = reads.get(self.cluster, resource, at, request)
            return self._shown(200, item, resource, at, (request, form))
        page = reads.listed(self.cluster, resource, at, request)
        return self._list(page, resource, at, (request, form))

    def _log(self, resource: Resource, at: Target) -> Answer:
        """No kubelet keeps logs here; a pod on an unknown node is told of in a real server's odd words."""
        pod = self.cluster.require(resource, (at.namespace, at.name))
        raise status.not_found(resource, pod["spec"].get("nodeName") or at.name)

    def _written(self, resource: Resource, at: Target, request: Request, form: Form) -> Answer:
        if resource.kind.endswith("Review"):
            sent = negotiation.decoded(request, resource)
            answered = reviews.answered(
                resource, sent, user=request.user, tokens=self._settings.tokens, authorizer=self._authorizer
            )
            return Answer(201, negotiation.encoded(answered, form.media))
        code, item, is_final = self._write(resource, at, request)
        answer = (
            Answer(code, negotiation.encoded(item, form.media), form.media)
            if is_final
            else self._shown(code, item, resource, at, (request, form))
        )
        if resource.kind == "CustomResourceDefinition":
            definitions.follow(self.cluster, after_seconds=self._settings.establish_seconds)
        self._run_controllers()
        return answer

    def _write(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        """Code, object, and whether the object is the answer as it is."""
        word = "binding" if resource.kind == "Binding" else at.subresource
        verb = self._WRITES.get(word) or self._WRITES.get(at.verb)
        assert verb is not None, "every allowed method has its handler"
        return verb(self, resource, at, request)

    def _create(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        how = _writing(request, at)
        return 201, writes.create(self.cluster, resource, at, negotiation.decoded(request, resource), how), False

    def _update(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        how = _writing(request, at)
        item, is_new = writes.replace(self.cluster, resource, at, negotiation.decoded(request, resource), how)
        return 201 if is_new else 200, item, False

    def _patch(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        item, is_new = writes.patch(self.cluster, resource, at, request, _writing(request, at))
        return 201 if is_new else 200, item, False

    def _delete(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        how = _delete_options(request, resource)
        item = deletions.delete(self.cluster, resource, (at.namespace, at.name), how)
        return 200, item, item["kind"] == "Status"

    def _delete_collection(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        how = _delete_options(request, resource)
        page = reads.listed(self.cluster, resource, at, request)
        for item in page.items:
            name = item["metadata"].get("namespace", ""), item["metadata"]["name"]
            deletions.delete(self.cluster, resource, name, how)
        return 200, self._list_body(page, resource, at), True

    def _evict(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        return 201, evictions.evict(self.cluster, resource, at, request), True

    def _bind(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        return 201, bindings.bind(self.cluster, resource, at, request), True

    def _finalize(self, resource: Resource, at: Target, request: Request) -> tuple[int, Any, bool]:
        item = self.cluster.require(resource, (at.namespace, at.name))
        sent = negotiation.decoded(request, resource)
        return 200, deletions.finalize(self.cluster, resource, item, sent, _writing(request, at)), False

    _WRITES: Mapping[str, Callable[..., tuple[int, Any, bool]]] = {
        "create": _create,
        "update": _update,
        "patch": _patch,
        "delete": _delete,
        "deletecollection": _delete_collection,
        "eviction": _evict,
        "binding": _bind,
        "finalize": _finalize,
    }

    def _run_controllers(self) -> None:
        if self._settings.controllers:
            self._controller.run()

    def _shown(self, code: int, item: Object, resource: Resource, at: Target, asked: tuple[Request, Form]) -> Answer:
        request, form = asked
        body = self._transformed(conversion.shown(item, resource, at.version), resource, form, request)
        headers = {"Warning": f'299 - "{_DEPRECATED}"'} if _is_deprecated(resource, at) else {}
        return Answer(code, negotiation.encoded(body, form.media), form.media, headers)

    def _transformed(self, item: Object, resource: Resource, form: Form, request: Request) -> Object:
        if form.transform == "Table":
            head = {"resourceVersion": item["metadata"].get("resourceVersion", "")}
            return tables.table([item], head, resource, self.cluster, request.query.get("includeObject", ""))
        return tables.metadata_only(item) if form.transform else item

    def _list(self, page: reads.Page, resource: Resource, at: Target, asked: tuple[Request, Form]) -> Answer:
        request, form = asked
        head = _list_head(page)
        items = [conversion.shown(item, resource, at.version) for item in page.items]
        if form.transform == "Table":
            body = tables.table(items, head, resource, self.cluster, request.query.get("includeObject", ""))
        elif form.transform:
            partial = [tables.metadata_only(item) for item in items]
            kind = {"kind": "PartialObjectMetadataList", "apiVersion": tables.META}
            body = kind | {"metadata": head, "items": partial}
            head.pop("remainingItemCount", None)
        else:
            body = self._list_body(page, resource, at)
        headers = {"Warning": f'299 - "{_DEPRECATED}"'} if _is_deprecated(resource, at) else {}
        return Answer(200, negotiation.encoded(body, form.media), form.media, headers)

    def _list_body(self, page: reads.Page, resource: Resource, at: Target) -> Object:
        items = [conversion.item_of_list(item, resource, at.version) for item in page.items]
        kind = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version(at.version)}
        head = _list_head(page)
        return kind | {"metadata": {"continue": "", **head} if resource.custom else head, "items": items}


def _line(word: str, item: Object) -> bytes:
    return negotiation.encoded({"type": word, "object": item}, negotiation.JSON) + b"\n"


def _list_head(page: reads.Page) -> Object:
    head: Object = {"resourceVersion": str(page.revision)}
    if page.token:
        head["continue"] = page.token
    if page.remaining is not None:
        head["remainingItemCount"] = page.remaining
    return head


def _is_deprecated(resource: Resource, at: Target) -> bool:
    return resource.plural == "poddisruptionbudgets" and at.version == "v1beta1"


def _writing(request: Request, at: Target) -> Writing:
    """The options of a write; Refused 422."""
    kind, query = _OPTIONS[at.verb], request.query
    dry, manager = query.get("dryRun", ""), query.get("fieldManager", "")
    if dry not in ("", "All"):
        raise status.invalid_options(kind, status.unsupported("dryRun", [dry], ["All"]))
    if len(manager.encode()) > _MANAGER_LIMIT:
        raise status.invalid_options(kind, status.too_long("fieldManager", _MANAGER_LIMIT))
    if at.verb == "patch":
        applies = negotiation.sent_media(request) == patches.APPLY
        if applies and not manager:
            raise status.invalid_options(kind, status.required("fieldManager", "is required for apply patch"))
        if not applies and "force" in query:
            cause = status.forbidden_field("force", "may not be specified for non-apply patch")
            raise status.invalid_options(kind, cause)
    agent = request.headers.get("user-agent", "").partition("/")[0]
    return Writing(manager or agent or "unknown", dry == "All")


def _delete_options(request: Request, resource: Resource) -> deletions.Options:
    # A body is the whole wish: beside one the query does not count (apiserver DeleteResource).
    if request.body:
        return deletions.options(negotiation.decoded(request, resource), {})
    return deletions.options({}, request.query)
