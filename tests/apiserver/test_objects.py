"""Create, read, replace, delete."""

from __future__ import annotations

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def test_a_new_object_gets_uid_version_and_time_from_the_server(config_map):
    meta = config_map("a", uid="mine", creationTimestamp="2020-01-01T00:00:00Z")["metadata"]
    assert meta["uid"] != "mine"
    assert meta["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert int(meta["resourceVersion"]) > 100


def test_generated_names_have_five_more_characters(ask):
    name = ask("POST", MAPS, {"metadata": {"generateName": "g-"}}).body["metadata"]["name"]
    assert name.startswith("g-") and len(name) == 7


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        pytest.param(MAPS, {"metadata": {"name": "there"}}, 409, "AlreadyExists", id="a name that is taken"),
        pytest.param(MAPS, {"metadata": {}}, 422, "Invalid", id="no name"),
        pytest.param(MAPS, {"metadata": {"name": "A_b"}}, 422, "Invalid", id="a name that is no DNS name"),
        pytest.param(MAPS, {"metadata": {"name": "x", "namespace": "o"}}, 400, "BadRequest", id="another namespace"),
        pytest.param(MAPS, {"kind": "Secret", "metadata": {"name": "x"}}, 400, "BadRequest", id="another kind"),
        pytest.param(MAPS, {"metadata": {"name": "x"}, "data": {"k": 1}}, 400, "BadRequest", id="a number for a text"),
        pytest.param(MAPS, "{", 400, "BadRequest", id="half a body"),
        pytest.param(MAPS.replace("default", "gone"), {"metadata": {"name": "x"}}, 404, "NotFound", id="no namespace"),
    ],
)
def test_create_refuses(ask, config_map, *, path, body, status, reason):
    config_map("there")
    reply = ask("POST", path, body)
    assert (reply.status, reply.body["reason"], reply.body["code"]) == (status, reason, status)


def test_unknown_fields_fall_away(ask):
    reply = ask("POST", MAPS, {"metadata": {"name": "x", "odd": 1}, "odd": 2})
    assert "odd" not in reply.body and "odd" not in reply.body["metadata"]


def test_a_stale_put_is_a_conflict_and_changes_nothing(ask, config_map):
    old = config_map("a")
    ask("PUT", f"{MAPS}/a", old | {"data": {"k": "2"}})
    reply = ask("PUT", f"{MAPS}/a", old | {"data": {"k": "3"}})
    assert (reply.status, reply.body["reason"]) == (409, "Conflict")
    assert ask("GET", f"{MAPS}/a").body["data"] == {"k": "2"}


def test_a_write_that_changes_nothing_keeps_the_version(ask, config_map):
    old = config_map("a")
    new = ask("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}, "data": old["data"]}).body
    assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


def test_a_lease_is_never_replaced_blindly_and_put_creates_it(ask):
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    assert ask("PUT", f"{LEASES}/l", lease).status == 201
    assert ask("PUT", f"{LEASES}/l", lease).status == 422


@pytest.mark.parametrize("when", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z", "soon"])
def test_a_lease_takes_times_with_six_digits_only(ask, when):
    lease = {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.000001Z"}}
    assert ask("POST", LEASES, lease).status == 201
    assert ask.patch(f"{LEASES}/l", {"spec": {"renewTime": when}}).status == 422


def test_finalizers_hold_an_object_until_the_last_is_gone(ask, config_map):
    config_map("a", finalizers=["e.com/x"])
    held = ask("DELETE", f"{MAPS}/a").body
    assert held["metadata"]["deletionTimestamp"]
    assert ask("GET", f"{MAPS}/a").status == 200
    assert ask.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}}).status == 200
    assert ask("GET", f"{MAPS}/a").status == 404


@pytest.mark.parametrize("wanted", [{"uid": "other"}, {"resourceVersion": "1"}])
def test_a_deletion_checks_its_preconditions(ask, config_map, wanted):
    config_map("a")
    reply = ask("DELETE", f"{MAPS}/a", {"preconditions": wanted})
    assert (reply.status, reply.body["details"]["kind"]) == (409, "ConfigMap")
    assert ask("GET", f"{MAPS}/a").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_dry_run_stores_nothing(ask, server, config_map, method):
    config_map("a")
    before = server.revision
    path = f"{MAPS}?dryRun=All" if method == "POST" else f"{MAPS}/a?dryRun=All"
    body = None if method == "DELETE" else {"metadata": {"name": "b" if method == "POST" else "a"}, "data": {"k": "x"}}
    kind = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
    assert ask(method, path, body, **kind).status in (200, 201)
    assert server.revision == before


def test_the_two_event_groups_show_the_same_events(ask):
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Node", "name": "n"}, "message": "m", "reason": "R"}
    assert ask("POST", "/api/v1/namespaces/default/events", event).status == 201
    other = ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e").body
    assert (other["note"], other["regarding"]["name"]) == ("m", "n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/things", 404),
        ("GET", "/apis/policy/v9", 404),
        ("GET", f"{MAPS}/a/status", 404),
        ("PUT", MAPS, 405),
        ("POST", f"{MAPS}/a", 405),
        ("FOO", MAPS, 405),
        ("OPTIONS", MAPS, 405),
    ],
)
def test_what_is_not_served_is_a_status(ask, method, path, status):
    reply = ask(method, path)
    assert (reply.status, reply.body["kind"]) == (status, "Status")


def test_an_unknown_group_is_plain_text(ask):
    reply = ask("GET", "/apis/no.such.group/v1/things")
    assert (reply.status, reply.body) == (404, "404 page not found\n")


def test_the_same_seed_gives_the_same_uids(ask, server, config_map):
    from apiserver import ApiServer

    mine = config_map("a")["metadata"]["uid"]
    with ApiServer(seed=1) as twin:
        item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        assert twin.objects.load(item)[0]["metadata"]["uid"] == mine


def test_a_restart_keeps_what_is_stored(ask, server, config_map):
    config_map("a")
    server.stop()
    server.start()
    assert ask("GET", f"{MAPS}/a").status == 200


def test_requests_are_remembered_with_their_subresource(ask, server, pod):
    pod("p")
    ask.patch("/api/v1/namespaces/default/pods/p/status", {})
    last = server.requests[-1]
    assert (last.verb, last.group, last.resource, last.namespace, last.name) == (
        "patch",
        "",
        "pods/status",
        "default",
        "p",
    )
