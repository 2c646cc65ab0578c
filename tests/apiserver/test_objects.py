"""Create, read, replace, delete."""

from __future__ import annotations

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


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
