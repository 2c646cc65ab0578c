"""From a request to its answer: who, may they, what is it, do it (the order of a real API server's filters)."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator, Mapping

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
    reads,
    reviews,
    status,
    watches,
    writes,
)
from apiserver.cluster import Cluster, Writing
from apiserver.requests import Request, Target, judged, target
from apiserver.resources import Resource
from apiserver.store import Object
from apiserver.users import ADMIN, ANONYMOUS, User

LOG = logging.getLogger(__name__)
TEXT = "text/plain; charset=utf-8"
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_METHODS: dict[str, frozenset[str]] = {
    "": frozenset({"GET", "POST"}),
    "name": frozenset({"GET", "PUT", "PATCH", "DELETE"}),
    "status": frozenset({"GET", "PUT", "PATCH"}),
    "binding": frozenset({"POST"}),
    "eviction": frozenset({"POST"}),
}


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
    enforce_owners: bool = False
    """As the admission plugin OwnerReferencesPermissionEnforcement: blockOwnerDeletion needs a right to the owner."""
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
            return Answer(refused.code, negotiation.encoded(refused.body), headers=refused.headers)
        except Exception as error:
            # A request that breaks a handler harms nobody but its client, who must not take it for a cut connection.
            LOG.exception("%s %s broke its handler", request.method, request.path)
            return Answer(500, negotiation.encoded(status.broken(error).body))

    def _routed(self, request: Request) -> Answer | Stream:
        user = self._user(request)
        request = dataclasses.replace(request, user=user)
        at = target(request)
        with self.cluster.store.lock:
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
        return tokens[bearer].authenticated() if bearer in tokens else ANONYMOUS if tokens else ADMIN

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
            return Answer(200, found.encode(), TEXT)
        return Answer(200, negotiation.encoded(found))

    def _resource(self, at: Target) -> Resource:
        if at.group and at.version not in self.cluster.catalog.groups().get(at.group, ()):
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
        if request.method not in allowed or (scopeless and request.method != "GET"):
            raise status.not_allowed()
        if scopeless and at.name and at.verb != "watch":
            raise status.no_resource()

    def _handled(self, resource: Resource, at: Target, request: Request) -> Answer | Stream:
        negotiation.check_accepted(request)
        if at.verb == "watch":
            return self._watch(resource, at, request)
        if at.verb in ("get", "list"):
            return self._read(resource, at, request)
        return self._written(resource, at, request)

    def _watch(self, resource: Resource, at: Target, request: Request) -> Stream:
        watch = watches.asked(self.cluster, resource, at, request)
        events = watches.events(self.cluster, watch, self._stopped.is_set)

        def lines() -> Iterator[bytes | None]:
            try:
                for event in events:
                    yield None if event is None else _line(*event)
            except Exception as error:
                LOG.exception("watch of %s broke", request.path)
                yield _line("ERROR", status.broken(error).body)

        return Stream(lines())

    def _read(self, resource: Resource, at: Target, request: Request) -> Answer:
        if at.name:
            return _shown(200, reads.get(self.cluster, resource, at, request), resource, at)
        page = reads.listed(self.cluster, resource, at, request)
        return Answer(200, negotiation.encoded(_list_body(page, resource, at)))

    def _written(self, resource: Resource, at: Target, request: Request) -> Answer:
        if resource.kind.endswith("Review"):
            sent = negotiation.decoded(request, resource)
            tokens = self._settings.tokens
            answered = reviews.answered(resource, sent, tokens=tokens, authorizer=self._authorizer)
            return Answer(201, negotiation.encoded(answered))
        code, item = self._write(resource, at, request)
        if resource.kind == "CustomResourceDefinition":
            definitions.follow(self.cluster)
        self._run_controllers()
        return Answer(code, negotiation.encoded(item)) if item["kind"] == "Status" else _shown(code, item, resource, at)

    def _write(self, resource: Resource, at: Target, request: Request) -> tuple[int, Object]:
        """Code and object, or the Status that is the answer."""
        cluster = self.cluster
        match "binding" if resource.kind == "Binding" else at.subresource or at.verb:
            case "eviction":
                return 201, evictions.evict(cluster, resource, at, request)
            case "binding":
                return 201, bindings.bind(cluster, resource, at, request)
            case "delete":
                options = _delete_options(request, resource)
                return 200, deletions.delete(cluster, resource, (at.namespace, at.name), options)
        how = _writing(request, at)
        if at.verb == "patch":
            return 200, writes.patch(cluster, resource, at, request, how)
        sent = negotiation.decoded(request, resource)
        if at.verb == "create":
            if self._settings.enforce_owners:
                self._check_owners(resource, request.user, sent)
            return 201, writes.create(cluster, resource, at, sent, how)
        item, is_new = writes.replace(cluster, resource, at, sent, how)
        return 201 if is_new else 200, item

    def _check_owners(self, resource: Resource, user: User, sent: Object) -> None:
        meta = sent.get("metadata") or {}
        for owner in meta.get("ownerReferences") or ():
            group = owner["apiVersion"].rpartition("/")[0]
            plural = next((each.plural for each in self.cluster.catalog.all() if each.kind == owner["kind"]), "")
            at = Target("update", group, resource=plural, name=owner.get("name", ""), subresource="finalizers")
            if owner.get("blockOwnerDeletion") and not self._authorizer.judge(user, at).allowed:
                whose = "an ownerReference refers to a resource you can't set finalizers on: , <nil>"
                raise status.forbidden(resource, meta.get("name", ""), f"cannot set blockOwnerDeletion if {whose}")

    def _run_controllers(self) -> None:
        if self._settings.controllers:
            self._controller.run()


def _shown(code: int, item: Object, resource: Resource, at: Target) -> Answer:
    return Answer(code, negotiation.encoded(conversion.shown(item, resource, at.version)))


def _list_body(page: reads.Page, resource: Resource, at: Target) -> Object:
    items = [conversion.item_of_list(item, resource, at.version) for item in page.items]
    kind = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version(at.version)}
    head = _list_head(page)
    return kind | {"metadata": {"continue": "", **head} if resource.custom else head, "items": items}


def _line(word: str, item: Object) -> bytes:
    return negotiation.encoded({"type": word, "object": item}) + b"\n"


def _list_head(page: reads.Page) -> Object:
    head: Object = {"resourceVersion": str(page.revision)}
    if page.token:
        head["continue"] = page.token
    if page.remaining is not None:
        head["remainingItemCount"] = page.remaining
    return head


def _writing(request: Request, at: Target) -> Writing:
    """The options of a write; Refused 422."""
    dry = request.query.get("dryRun", "")
    if dry not in ("", "All"):
        raise status.invalid_options(_OPTIONS[at.verb], status.unsupported("dryRun", [dry], ["All"]))
    return Writing(dry == "All")


def _delete_options(request: Request, resource: Resource) -> deletions.Options:
    # A body is the whole wish: beside one the query does not count (apiserver DeleteResource).
    if request.body:
        return deletions.options(negotiation.decoded(request, resource), {})
    return deletions.options({}, request.query)
