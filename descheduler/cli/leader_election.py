"""Which Lease makes this process the leader: by options, Koordinator's `leaderElection`, or upstream's defaults."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from descheduler.policy.koordinator import LeaderElection
    from descheduler.policy.watched_file import PolicyFile
    from koordlite.kube.client.access import Api
    from koordlite.kube.client.lease import LeaseSettings

LOG = logging.getLogger("descheduler")


@dataclasses.dataclass(frozen=True, slots=True)
class _LeaseOptions:
    """The Lease and its times, as they are written."""

    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_name: str = "descheduler"
    resource_namespace: str = "kube-system"


_DEFAULTS = _LeaseOptions()


def add_options(command: argparse.ArgumentParser) -> None:
    """Upstream's options, under its names."""
    group = command.add_argument_group(
        "leader election",
        "what is not given is taken from a DeschedulerConfiguration's leaderElection, else it is client-go's default",
    )
    group.add_argument("--leader-elect", action="store_true", help="evict only while holding a Lease")
    for field in dataclasses.fields(_LeaseOptions):
        metavar = {"resource_name": "NAME", "resource_namespace": "NAMESPACE"}.get(field.name, "TIME")
        group.add_argument(_option(field.name), metavar=metavar, help=f"default {field.default}")


def asked_for(args: argparse.Namespace, policy: PolicyFile, interval: float) -> bool:
    """Is a Lease needed? A policy of Koordinator asks for one unless it says no. It guards evictions: a dry run, or a
    single cycle by hand, has nothing to guard."""
    if args.leader_elect:
        return True
    written = policy.leader_election
    evicts = args.dry_run == "false" and not policy.dry_run
    return bool(written and written.leader_elect and evicts and interval)


@contextlib.contextmanager
def elected(
    args: argparse.Namespace, policy: PolicyFile, api: Api, *, wake: Callable[[], object]
) -> Iterator[Callable[[], bool]]:
    """Whether this process leads, asked at any moment. `wake` is called when it begins to."""
    from descheduler.serve.log import line
    from koordlite.clock import RealClock
    from koordlite.kube.client.election import Election
    from koordlite.kube.client.lease import Candidate

    settings, clock, ending = _settings(args, policy.leader_election), RealClock(), False

    def gained() -> None:
        LOG.info("%s", line(event="lease", result="gained", lease=f"{settings.namespace}/{settings.name}"))
        wake()

    def lost() -> None:
        if ending:
            LOG.info("%s", line(event="lease", result="given back"))
        else:
            LOG.warning("%s", line(event="lease", result="lost", text="nothing more is evicted"))

    candidate = Candidate(api, settings, monotonic=clock.monotonic, wall=clock.wall)
    election = Election(candidate, gained=gained, lost=lost)
    election.start()
    try:
        yield candidate.is_leader
    finally:
        ending = True
        election.stop()


def _settings(args: argparse.Namespace, written: LeaderElection | None) -> LeaseSettings:
    import secrets
    import socket

    from koordlite.kube.client.lease import LeaseSettings
    from koordlite.model import duration

    def setting(name: str) -> str:
        return str(getattr(args, f"leader_elect_{name}") or getattr(written or _DEFAULTS, name))

    def seconds(name: str) -> float:
        return duration.of_option(setting(name), _option(name))

    try:
        return LeaseSettings(
            namespace=setting("resource_namespace"),
            name=setting("resource_name"),
            identity=f"{socket.gethostname()}_{secrets.token_hex(8)}",
            duration_seconds=round(seconds("lease_duration")),
            renew_seconds=seconds("renew_deadline"),
            retry_seconds=seconds("retry_period"),
        )
    except ValueError as error:
        do = "make the retry period shorter than the renew deadline, and that shorter than the lease duration"
        raise InputError(Problem("command line", _option("lease_duration"), "", str(error), do)) from error


def _option(name: str) -> str:
    return f"--leader-elect-{name.replace('_', '-')}"
