"""Work in the background for a loop that does not wait."""

from __future__ import annotations

import errno
import threading
import time

import pytest

from koordlite.kube.client.access import ApiUnreachable
from koordlite.kube.client.background import BackgroundRequests


def test_a_quick_answer_is_given_at_once() -> None:
    requests = BackgroundRequests("test")
    assert requests.send("a", 1, lambda: 42, patience_seconds=5.0) == 42
    requests.stop()


def test_an_error_belongs_to_who_asked() -> None:
    requests = BackgroundRequests("test")

    def fail() -> None:
        raise PermissionError(errno.EPERM, "no")

    with pytest.raises(PermissionError):
        requests.send("a", 1, fail, patience_seconds=5.0)
    assert requests.send("a", 1, lambda: "later", patience_seconds=5.0) == "later"
    requests.stop()


def test_a_timeout_inside_the_work_is_not_taken_for_impatience() -> None:
    requests = BackgroundRequests("test")

    def fail() -> None:
        raise TimeoutError("inside")

    with pytest.raises(TimeoutError, match="inside"):
        requests.send("a", 1, fail, patience_seconds=5.0)
    requests.stop()


def test_a_slow_answer_is_fetched_by_asking_again_and_the_work_is_done_once() -> None:
    requests, gate, done = BackgroundRequests("test"), threading.Event(), list[int]()

    def work() -> str:
        gate.wait(5)
        done.append(1)
        return "done"

    for _ in range(3):
        with pytest.raises(ApiUnreachable) as caught:
            requests.send("a", 1, work, patience_seconds=0.01)
        assert caught.value.errno == errno.EINPROGRESS
    gate.set()
    assert requests.send("a", 1, work, patience_seconds=5.0) == "done"
    assert done == [1]
    requests.stop()


def test_who_asks_again_does_not_wait_again_and_hears_the_same_words() -> None:
    requests, gate = BackgroundRequests("test"), threading.Event()
    heard = []
    for _ in range(2):
        started = time.monotonic()
        with pytest.raises(ApiUnreachable) as caught:
            requests.send("a", 1, lambda: gate.wait(5), patience_seconds=0.3)
        heard.append((time.monotonic() - started, str(caught.value)))
    gate.set()
    requests.stop()
    (first_seconds, words), (again_seconds, same) = heard
    assert again_seconds < first_seconds / 2
    assert words == same, "what changes in every tick is logged in every tick"


def test_other_words_wait_for_the_first_and_get_their_own_answer() -> None:
    requests, gate = BackgroundRequests("test"), threading.Event()
    with pytest.raises(ApiUnreachable):
        requests.send("a", 1, lambda: gate.wait(5), patience_seconds=0.01)
    with pytest.raises(ApiUnreachable):
        requests.send("a", 2, lambda: "second", patience_seconds=0.01)
    gate.set()
    assert requests.send("a", 2, lambda: "second", patience_seconds=5.0) == "second"
    requests.stop()


def test_work_that_waited_for_other_work_has_its_patience_whole() -> None:
    requests, gate = BackgroundRequests("test"), threading.Event()
    with pytest.raises(ApiUnreachable):
        requests.send("a", 1, lambda: gate.wait(5), patience_seconds=0.01)
    threading.Timer(0.4, gate.set).start()
    slow = threading.Event()
    assert requests.send("a", 2, lambda: slow.wait(0.4) or "done", patience_seconds=0.6) == "done"
    requests.stop()
