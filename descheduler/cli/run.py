"""The options of `descheduler run`, and the Lease that makes it the leader: upstream's names where upstream has one."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Sequence

from descheduler.cli import source
from koordlite.model.errors import InputError, Problem

PORT = 10258
EVERYWHERE = "0.0.0.0"  # noqa: S104: upstream's default; all but health needs a token there.
VERBOSE = 4
"""klog level from which on decisions that stay the same are logged, too."""
_COMMANDS_OWN = ("-h", "--help", "--version")

_KNOWN = ("AllAlpha", "AllBeta", "EvictionsInBackground", "DisablePVCReservation")

_WITHOUT_EFFECT = {
    "--client-connection-qps": "the requests of a cycle are few, and are paced by the server",
    "--client-connection-burst": "the requests of a cycle are few, and are paced by the server",
    "--cert-dir": "a certificate that signs itself is kept in memory only",
    "--tls-cipher-suites": "TLS 1.2 and later with the ciphers of OpenSSL",
    "--tls-min-version": "TLS 1.2 and later",
    "--tls-sni-cert-key": "one certificate is served",
    "--vmodule": "the log is not divided by source file",
    "--log-flush-frequency": "each line is written at once",
    "--http2-max-streams-per-connection": "HTTP/1.1 is served",
    "--otel-collector-endpoint": "there are no traces; the report and the log have every decision",
    "--otel-transport-ca-cert": "there are no traces",
    "--otel-service-name": "there are no traces",
    "--otel-trace-namespace": "there are no traces",
    "--otel-sample-rate": "there are no traces",
    "--show-hidden-metrics-for-version": "there are no hidden metrics",
    "--authentication-kubeconfig": "tokens are reviewed by the cluster that is judged",
    "--authorization-kubeconfig": "tokens are reviewed by the cluster that is judged",
    "--client-ca-file": "clients show tokens, not certificates",
}
"""Options with a value that change nothing here, each with the reason."""
_SWITCHES_WITHOUT_EFFECT = {
    "--permit-address-sharing": "the address is not shared",
    "--permit-port-sharing": "the port is not shared",
    "--enable-http2": "HTTP/1.1 is served",
    "--otel-fallback-no-op-on-error": "there are no traces",
}


def as_run(argv: Sequence[str]) -> list[str]:
    """The arguments as those of a command: options without one are those of `run`, as upstream's."""
    if argv and argv[0].startswith("-") and argv[0] not in _COMMANDS_OWN:
        return ["run", "--secure-port", str(PORT), *argv]
    return list(argv)


def add_upstream_options(command: argparse.ArgumentParser) -> None:
    """The options, under the names of upstream."""
    group = command.add_argument_group(
        "upstream's options", "as upstream's manifests give them; the log says which of them change nothing"
    )
    group.add_argument("--bind-address", metavar="ADDRESS", help=f"with --secure-port: default {EVERYWHERE}")
    group.add_argument(
        "--secure-port",
        metavar="PORT",
        type=int,
        help="serve HTTPS there instead of --listen, with a certificate that signs itself unless --tls-cert-file names "
        "one; 0: nowhere",
    )
    group.add_argument("--disable-metrics", nargs="?", const="true", default="false", help="serve no /metrics")
    group.add_argument(
        "-v",
        "--v",
        metavar="LEVEL",
        type=int,
        nargs="?",
        const=VERBOSE,
        default=0,
        help=f"{VERBOSE} and more, or no number: --verbose; less is not",
    )
    group.add_argument("--feature-gates", metavar="NAME=BOOL,…", default="", help=", ".join(_KNOWN))
    for option, why in _WITHOUT_EFFECT.items():
        group.add_argument(option, metavar="VALUE", default=None, help=f"no effect: {why}")
    for option, why in _SWITCHES_WITHOUT_EFFECT.items():
        group.add_argument(option, nargs="?", const="true", default=None, help=f"no effect: {why}")


def gates(text: str) -> dict[str, bool]:
    """`A=true,B=false` by name. InputError for a gate that is none, or a value that is no boolean."""
    by_name: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if name not in _KNOWN or value.lower() not in ("true", "false"):
            do = f"write NAME=true or NAME=false with NAME one of {', '.join(_KNOWN)}"
            raise InputError(Problem("command line", "--feature-gates", entry, "no such gate or value", do))
        by_name[name] = value.lower() == "true"
    return by_name


def address(args: argparse.Namespace) -> tuple[str, int] | None:
    """HTTPS address by upstream's options; None when they do not say. Port 0: nowhere."""
    if args.secure_port is None and args.bind_address is None:
        return None
    return args.bind_address or EVERYWHERE, PORT if args.secure_port is None else args.secure_port


def notices(args: argparse.Namespace) -> Iterator[str]:
    """Options that change nothing here, for the log."""
    for option, why in (_WITHOUT_EFFECT | _SWITCHES_WITHOUT_EFFECT).items():
        if getattr(args, option.removeprefix("--").replace("-", "_")) is not None:
            yield f"{option} has no effect: {why}"
    feature_gates = gates(args.feature_gates)
    if feature_gates.get("EvictionsInBackground") is False:
        yield "--feature-gates EvictionsInBackground=false has no effect: such evictions are always waited for"
    for name in ("AllAlpha", "AllBeta"):
        if name in feature_gates:
            yield f"--feature-gates {name} has no effect: there is nothing that it would switch"


LISTEN = "127.0.0.1:10258"
"""Default address of metrics, health and report."""


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
    add_upstream_options(command)
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
