"""The official client is entered without its informers, web sockets and OAuth, and is whole for who asks for them."""

from __future__ import annotations

import json
import subprocess
import sys

LEAN = """
import json, sys
from koordlite.kube.client import credentials
credentials.bare("https://127.0.0.1:1", user_agent="test")
from kubernetes.config import incluster_config
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
WHOLE = """
from koordlite.kube.client import library
library.prepare()
library.prepare()
import kubernetes
assert kubernetes.__path__
from kubernetes import client, config, watch
assert config.load_kube_config and kubernetes.informer and client.V1Pod and kubernetes.utils.parse_quantity
assert not hasattr(kubernetes, "no_such_name")
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_never_used_is_not_imported() -> None:
    loaded = set(json.loads(run(LEAN)))
    assert "urllib3" in loaded
    assert not loaded & {"oauthlib", "requests", "requests_oauthlib", "websocket", "jsonschema"}


def test_who_asks_for_a_name_of_the_package_gets_all_of_it() -> None:
    run(WHOLE)
