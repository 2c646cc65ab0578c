"""What `status` says of each list that is kept up to date."""

from __future__ import annotations

import pytest

from koordlite.model.status import WatchState
from koordlite.report import view


@pytest.mark.parametrize(
    ("state", "said"),
    [
        pytest.param(
            WatchState(name="pods", age_seconds=0.0, resource_version="7", objects=1),
            "1 object, at version 7",
            id="well",
        ),
        pytest.param(
            WatchState(name="pods", age_seconds=None, error="no"), "never read, last error: no", id="never-read"
        ),
        pytest.param(
            WatchState(name="pods", age_seconds=9.0, objects=2, relists=3, error="410 Expired"),
            "2 objects, listed again 3 times, last error: 410 Expired",
            id="in-trouble",
        ),
        pytest.param(
            WatchState(name="topology", age_seconds=None, absent=True, error="404"),
            "the API server does not have this kind",
            id="a-kind-that-is-not-installed",
        ),
    ],
)
def test_a_watch_in_one_line(state: WatchState, said: str) -> None:
    assert view.watched(state) == said
