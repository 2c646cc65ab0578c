"""A Device object of the node means that koordlet is needed there."""

from __future__ import annotations

from typing import Any

import pytest
from tinyapi import Reply
from tinyapi import status as refusal

from koordlite.cli import node_check


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        pytest.param(Reply(body={"kind": "Device"}), [("no", "GPUs")], id="there is one"),
        pytest.param(refusal(404), [], id="there is none"),
        pytest.param(refusal(403), [("part", "not known")], id="nobody may ask"),
    ],
)
def test_who_reports_devices_is_kept(serve: Any, reply: Reply, answers: list[tuple[str, str]]) -> None:
    server, api = serve(lambda request: reply)
    found = list(node_check.device_object(api, "n1"))
    assert [(each.answer, words in each.detail) for each, (_, words) in zip(found, answers, strict=True)] == [
        (answer, True) for answer, _ in answers
    ]
    assert server.requests[0].path == "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1"
