"""Options of upstream's descheduler and of Koordinator's that their manifests use: taken, or named as without effect.

`descheduler --policy-config-file … --descheduling-interval 5m --v 3`, without a command, is `descheduler run` as these
manifests start it: HTTPS on port 10258 of every address, with a certificate that signs itself unless one is named. The
one difference is kept: nothing is evicted without `--dry-run=false`.

Source: kubernetes-sigs/descheduler `cmd/descheduler`, Koordinator `cmd/koord-descheduler`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from koordlite.model.errors import InputError, Problem

PORT = 10258
EVERYWHERE = "0.0.0.0"  # noqa: S104: upstream's default; all but health needs a token there.
VERBOSE = 4
"""From this klog level on, decisions that stay the same are logged, too."""
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


def add_options(command: argparse.ArgumentParser) -> None:
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
    found: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if name not in _KNOWN or value.lower() not in ("true", "false"):
            do = f"write NAME=true or NAME=false with NAME one of {', '.join(_KNOWN)}"
            raise InputError(Problem("command line", "--feature-gates", entry, "no such gate or value", do))
        found[name] = value.lower() == "true"
    return found


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
    given = gates(args.feature_gates)
    if given.get("EvictionsInBackground") is False:
        yield "--feature-gates EvictionsInBackground=false has no effect: such evictions are always waited for"
    for name in ("AllAlpha", "AllBeta"):
        if name in given:
            yield f"--feature-gates {name} has no effect: there is nothing that it would switch"
