"""Requests of the leader only: one that has lost the lease meanwhile sends nothing more."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from descheduler.evictors.migration_api import Api
from koordlite.kube.client.answers import Answer, ApiUnreachable
from koordlite.kube.client.paging import Page


class LeaderApi:
    """An API server that is asked only while this process leads."""

    def __init__(self, api: Api, leads: Callable[[], bool]) -> None:
        self._api, self._leads = api, leads

    def request(self, method: str, path: str, **how: Any) -> Answer:
        """Ask, or ApiUnreachable with ECANCELED when another process may be the leader."""
        self._check(path)
        return self._api.request(method, path, **how)

    def collect(self, path: str, query: Any = ()) -> Page:
        """A whole list, with the same condition."""
        self._check(path)
        return self._api.collect(path, query)

    def _check(self, path: str) -> None:
        if not self._leads():
            raise ApiUnreachable(errno.ECANCELED, "not the leader any more: nothing was asked", path)


def waiting(wait: Callable[[float], bool], leads: Callable[[], bool]) -> Callable[[float], bool]:
    """Waits that a lost lease ends too, within a second."""

    def pass_time(seconds: float) -> bool:
        left = seconds
        while left > 0:
            if not leads() or wait(min(1.0, left)):
                return True
            left -= 1.0
        return False

    return pass_time
