"""A Device object of the node means that koordlet is needed there."""

from __future__ import annotations

from typing import Any

import pytest
from tinyapi import Reply
from tinyapi import status as refusal

from koordlite.cli import check

THERE = Reply(body={"resources": [{"name": "devices"}]})


@pytest.mark.parametrize(
    ("reply", "kinds", "answers"),
    [
        pytest.param(Reply(body={"kind": "Device"}), THERE, [("no", "GPUs")], id="there is one"),
        pytest.param(refusal(404), THERE, [], id="there is none"),
        pytest.param(refusal(403), THERE, [("part", "not known")], id="this identity may not ask"),
        pytest.param(refusal(403), refusal(404), [], id="refused before the server sees that there is no such group"),
        pytest.param(refusal(403), Reply(body={"resources": [{"name": "reservations"}]}), [], id="nor such a kind"),
        pytest.param(refusal(403), refusal(403), [("part", "not known")], id="without discovery"),
    ],
)
def test_who_reports_devices_is_kept(serve: Any, reply: Reply, kinds: Reply, answers: list[tuple[str, str]]) -> None:
    server, api = serve(lambda request: reply if request.path.endswith("/n1") else kinds)
    found = list(check.device_object(api, "n1"))
    assert [(each.answer, words in each.detail) for each, (_, words) in zip(found, answers, strict=True)] == [
        (answer, True) for answer, _ in answers
    ]
    assert server.requests[0].path == "/apis/scheduling.koordinator.sh/v1alpha1/devices/n1"
