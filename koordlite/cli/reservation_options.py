"""Options of `koordlite reservation-controller`, also in the extender's process, and of `koordlite reservation`."""

from __future__ import annotations

import argparse

from koordlite import commandline

IMAGE = "registry.k8s.io/pause:3.10"
PRIORITY_CLASS = "koordlite-reservation"
SCHEDULER = "koordlite-scheduler"


def controller(command: argparse.ArgumentParser) -> None:
    """The service by itself."""
    _cluster(command)
    shared(command)
    health_listen(command)
    token_audience(command, "with --health-listen: ")
    command.add_argument("--log-level", choices=("warning", "info", "debug"), default="info")


def health_listen(command: argparse.ArgumentParser) -> None:
    """Address at which a program of the scheduler's side answers kubelet and Prometheus."""
    command.add_argument(
        "--health-listen",
        metavar="ADDRESS:PORT",
        default="",
        help="answer health there, for kubelet's probes, and /metrics to tokens that may get it",
    )


def token_audience(command: argparse.ArgumentParser, when: str = "") -> None:
    """Options about the tokens that count; `when` begins the help."""
    command.add_argument("--token-audience", metavar="NAME", default="", help=f"{when}what tokens have to be bound to")


def shared(command: argparse.ArgumentParser) -> None:
    """Options of the controller wherever it runs."""
    group = command.add_argument_group("reservation controller")
    group.add_argument(
        "--placeholder-image",
        metavar="IMAGE",
        default=IMAGE,
        help=f"what placeholder pods run; it has only to stay (default: {IMAGE})",
    )
    group.add_argument(
        "--placeholder-priority-class",
        metavar="NAME",
        default=PRIORITY_CLASS,
        help=f"PriorityClass of placeholder pods; empty: the cluster's default (default: {PRIORITY_CLASS})",
    )
    group.add_argument(
        "--placeholder-scheduler",
        metavar="NAME",
        default="default-scheduler",
        help="places the placeholders of templates that name no scheduler (default: default-scheduler)",
    )
    group.add_argument(
        "--placeholder-namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="make placeholders only there; repeatable (default: everywhere but in kube-system, kube-public, "
        "kube-node-lease and koordlite-system)",
    )
    group.add_argument(
        "--guarded-scheduler",
        metavar="NAME",
        action="append",
        default=[],
        help=f"schedulerName that asks our extender, which keeps its pods off what is being handed over; repeatable "
        f"(default: {SCHEDULER})",
    )
    group.add_argument(
        "--lease-namespace", metavar="NAMESPACE", default="koordlite-system", help="of the lease of the active one"
    )


def reservation(command: argparse.ArgumentParser) -> None:
    """Questions about Reservations."""
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser(
        "list", help="every Reservation: phase, node, what it holds, owners, end, why it waits"
    )
    explain = actions.add_parser("explain", help="who may use it, who does, what it holds, why it waits, when it ends")
    explain.add_argument("name", metavar="NAME")
    for each in (listing, explain):
        _cluster(each)
        commandline.add_output(each)


def _cluster(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig (default: the cluster of this pod)")
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current context)")
