"""The options of `descheduler run`, and the Lease that makes it the leader: upstream's names where upstream has one."""

from __future__ import annotations

import argparse
import dataclasses

from descheduler.cli import source, upstream

LISTEN = "127.0.0.1:10258"
"""Where metrics, health and report are served unless something else is said."""


def add_options(command: argparse.ArgumentParser) -> None:
    """Every option of `run`. Names are upstream's where upstream has one."""
    source.add_options(command)
    command.add_argument(
        "--dry-run",
        nargs="?",
        const="true",
        default="true",
        choices=("true", "false"),
        help="false: evict. Without it nothing is",
    )
    command.add_argument(
        "--descheduling-interval",
        metavar="TIME",
        default="0s",
        help="time between the starts of two cycles, like 5m; 0s: one cycle, then end",
    )
    command.add_argument(
        "--watch",
        choices=("auto", "never"),
        default="auto",
        help="how later cycles learn what changed: auto watches each kind as long as that costs less than to list it; "
        "never lists. Default auto",
    )
    command.add_argument(
        "--report", metavar="DIR", help="write plan.txt, plan.json and plan.html there after each cycle"
    )
    _serving_options(command)
    command.add_argument(
        "--state-dir", metavar="DIR", help="keep the last good policy there, for a restart while the file is broken"
    )
    command.add_argument(
        "--log-format", "--logging-format", choices=("text", "json"), default="text", help="form of the log on stderr"
    )
    command.add_argument("--verbose", action="store_true", help="log decisions that stay the same, too")
    command.add_argument(
        "--memory-namespace",
        metavar="NAMESPACE",
        default="kube-system",
        help="where the ConfigMap descheduler-memory keeps past evictions, when pods are evicted. Default kube-system",
    )
    command.add_argument("--no-events", action="store_true", help="write no Events about evictions")
    _lease_options(command)
    upstream.add_options(command)
    command.set_defaults(run=run)


def _serving_options(command: argparse.ArgumentParser) -> None:
    """Address, audience and certificate of metrics, health and report."""
    command.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="where metrics, health and report are served while it loops; off: nowhere. Beyond loopback all but health "
        "needs the token of a service account that may get the path. Default: healthzBindAddress and "
        f"metricsBindAddress of a DeschedulerConfiguration, else {LISTEN}",
    )
    command.add_argument(
        "--token-audience", metavar="NAME", default="", help="with --listen: accept only tokens bound to this audience"
    )
    command.add_argument(
        "--tls-cert-file",
        metavar="FILE",
        default="",
        help="with --listen: serve HTTPS with this certificate (PEM, with its chain); read again when it is replaced",
    )
    command.add_argument(
        "--tls-private-key-file",
        metavar="FILE",
        default="",
        help="key of that certificate. Default: it is in the same file",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LeaseOptions:
    """The Lease and its times, as they are written."""

    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_name: str = "descheduler"
    resource_namespace: str = "kube-system"


LEASE = LeaseOptions()


def _lease_options(command: argparse.ArgumentParser) -> None:
    """Upstream's options, under its names."""
    group = command.add_argument_group(
        "leader election",
        "what is not given is taken from a DeschedulerConfiguration's leaderElection, else it is client-go's default",
    )
    group.add_argument("--leader-elect", action="store_true", help="evict only while holding a Lease")
    for field in dataclasses.fields(LeaseOptions):
        metavar = {"resource_name": "NAME", "resource_namespace": "NAMESPACE"}.get(field.name, "TIME")
        group.add_argument(lease_option(field.name), metavar=metavar, help=f"default {field.default}")


def lease_option(name: str) -> str:
    """Spell the option for a field of `LeaseOptions`."""
    return f"--leader-elect-{name.replace('_', '-')}"


def run(args: argparse.Namespace) -> int:
    """Cycles until stopped; 0, or 1 when the only cycle failed."""
    from descheduler.cli import service  # What runs takes long to import, and --help needs none of it.

    return service.run(args)
