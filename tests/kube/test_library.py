"""The official client is entered without its informers, web sockets and OAuth, and is whole for who asks for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cyaml
from tinyapi import Reply, Request, kubeconfig, serving

LEAN = """
import json, sys
from koordlite.kube.client import credentials
credentials.bare("https://127.0.0.1:1", user_agent="test")
credentials.load(sys.argv[1], None, user_agent="test")
from kubernetes.config import incluster_config
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
WHOLE = """
from koordlite.kube.client import credentials
credentials.prepare()
credentials.prepare()
import kubernetes
assert kubernetes.__path__
from kubernetes import client, config, watch
assert config.load_kube_config and kubernetes.informer and client.V1Pod and kubernetes.utils.parse_quantity
assert not hasattr(kubernetes, "no_such_name")
import urllib3
assert kubernetes.__version__ and urllib3.__version__ and urllib3.PoolManager and urllib3.http2.inject_into_urllib3
"""

OPENID = """
import os, sys
os.environ["OAUTHLIB_INSECURE_TRANSPORT"] = "1"
from koordlite.kube.client import credentials
print(credentials.load(sys.argv[1], None, user_agent="test").configuration.api_key["BearerToken"])
import oauthlib.oauth2, requests_oauthlib, kubernetes.client
assert oauthlib.oauth2.WebApplicationClient and isinstance(requests_oauthlib.OAuth2Session, type)
assert kubernetes.client.ApiClient.__module__ == "kubernetes.client.api_client"
"""
EXPIRED = "x.eyJleHAiOiAxfQ.x"
"""A token of OpenID Connect whose claims are only that it expired in 1970."""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_never_used_is_not_imported(tmp_path: Path) -> None:
    loaded = set(json.loads(run(LEAN, str(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")))))
    assert "urllib3" in loaded
    assert not loaded & {"oauthlib", "requests", "requests_oauthlib", "websocket", "jsonschema", "pydantic", "dateutil"}
    assert not loaded & {"zipfile", "csv"}, "urllib3 looks for a library for HTTP/2"


def test_who_asks_for_a_name_of_the_package_gets_all_of_it() -> None:
    run(WHOLE)


def test_a_token_of_openid_connect_is_renewed_with_the_real_libraries(tmp_path: Path) -> None:
    renewed = {"id_token": "fresh", "refresh_token": "next", "access_token": "a", "token_type": "bearer"}

    def answer(request: Request) -> Reply:
        return Reply(body={"token_endpoint": f"{issuer}/token"} if request.method == "GET" else renewed)

    with serving(answer) as server:
        issuer = server.url
        given = {"idp-issuer-url": issuer, "client-id": "me", "client-secret": "s", "refresh-token": "r"}
        file = kubeconfig(tmp_path / "k", issuer)
        document = cyaml.safe_load(file.read_text())
        document["users"][0]["user"] = {"auth-provider": {"name": "oidc", "config": {**given, "id-token": EXPIRED}}}
        file.write_text(json.dumps(document))
        assert run(OPENID, str(file)).strip() == "Bearer fresh"
        assert [r.path for r in server.requests][:2] == ["/.well-known/openid-configuration", "/token"]
