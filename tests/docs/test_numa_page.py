"""The curl commands of docs/numa.md, run as they are there against a server, but for its address."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from koordlite.scheduler.numa_api.switches import NUMA_AWARE, NUMA_DISTANCE
from tests.scheduler import numa_world
from tests.scheduler.numa_world import World

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "numa.md"
ADDRESS = "http://127.0.0.1:9320"
COMMANDS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("curl ")]
SAID = {
    "numaaware -X PUT": {"status": "open", "changed": True},
    "numaaware": {"status": "open"},
    "numadistance -X PUT": {"status": "open", "changed": True},
    "podaffinity -X PUT": {"status": "close", "changed": True},
}


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    with numa_world.world(tmp_path) as made:
        made.create(NUMA_AWARE, "tiers:\n- plugins:\n  - name: gang\n")
        made.create(NUMA_DISTANCE, None)
        yield made


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_curl_command_of_the_page_does_what_the_page_says(world: World):
    found = {}
    for command in COMMANDS:
        assert ADDRESS in command
        here = command.replace(ADDRESS, world.http.url).replace("curl ", "curl -sS --noproxy '*' ")
        environment = {**os.environ, "TOKEN": "may"}
        done = subprocess.run(
            ["sh", "-c", here], env=environment, capture_output=True, text=True, timeout=20, check=True
        )
        answer = json.loads(done.stdout)
        assert answer["code"] == 200, answer
        path = re.search(r"/rest/scheduling/v1/(\w+)", command)
        assert path
        found[path[1] + (" -X PUT" if "-X PUT" in command else "")] = answer["data"]
    assert found == SAID
    assert "- name: numa-aware" in world.data(NUMA_AWARE)[NUMA_AWARE.key]
