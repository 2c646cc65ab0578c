"""The scheduler's configuration: a KubeSchedulerConfiguration for a second scheduler, or the stanza for the cluster's
own.

What kube-scheduler 1.36 refuses at its start is refused here already, with what to do.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, Literal

import msgspec
import yaml

from koordlite.model import duration
from koordlite.model.errors import InputError, Problem

LOOPBACK = "http://127.0.0.1:9318"
MOST_SECONDS = 1.0
"""Longest `httpTimeout`: the scheduler asks about one pod after the other, three times each, and waits for answers."""
_EXTENDED = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Values that differ from one installation to the next."""

    scheduler_name: str = "koordlite-scheduler"
    namespace: str = "koordlite-system"
    """Of the second scheduler's lease."""
    url_prefix: str = LOOPBACK
    weight: int = 10
    http_timeout: str = "1s"
    required: bool | None = None
    """Whether pods wait while the extender is away; otherwise it is passed over. None: those of a second scheduler
    wait, since they asked for it, and those of the cluster's own do not."""
    managed_resources: tuple[str, ...] = ()
    binds: bool = True
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""


def of_arguments(args: argparse.Namespace) -> Options:
    """The options of the command line."""
    return Options(
        scheduler_name=args.scheduler_name,
        namespace=args.namespace,
        url_prefix=args.url_prefix or LOOPBACK,
        weight=args.weight,
        http_timeout=args.http_timeout,
        required=True if args.required else False if args.ignorable else None,
        managed_resources=tuple(args.managed_resource),
        binds=not args.no_bind,
        ca_file=args.ca_file,
        client_cert_file=args.client_cert_file,
        client_key_file=args.client_key_file,
    )


def text(what: Literal["configuration", "stanza"], options: Options) -> str:
    """YAML for `options`; InputError for those with which the scheduler does not start."""
    _check(options)
    required = what == "configuration" if options.required is None else options.required
    stanza: dict[str, Any] = {"extenders": [_extender(options, required=required)]}
    if what == "stanza":
        return _yaml(stanza)
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": options.scheduler_name,
            "resourceNamespace": options.namespace,
        },
        # Else it looks at a part of a large cluster's nodes, and takes the refusal of all these for one of all nodes.
        "profiles": [{"schedulerName": options.scheduler_name, "percentageOfNodesToScore": 100}],
    }
    return _yaml({**head, **stanza})


def _extender(options: Options, *, required: bool) -> dict[str, Any]:
    stanza: dict[str, Any] = {
        "urlPrefix": options.url_prefix,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        # Without it the scheduler evicts pods for one that the filter then refuses.
        "preemptVerb": "preempt",
        **({"bindVerb": "bind"} if options.binds else {}),
        "weight": options.weight,
        "nodeCacheCapable": True,
        "httpTimeout": options.http_timeout,
        # Ignorable, it is passed over also when it refuses a binding: the scheduler then binds the pod itself.
        "ignorable": not required,
    }
    if options.url_prefix.startswith("https://"):
        files = {"caFile": options.ca_file, "certFile": options.client_cert_file, "keyFile": options.client_key_file}
        stanza |= {"enableHTTPS": True, "tlsConfig": {name: file for name, file in files.items() if file}}
    if options.managed_resources:
        stanza["managedResources"] = [{"name": name} for name in options.managed_resources]
    return stanza


def _check(options: Options) -> None:
    problems = []
    if options.weight < 1:
        do = "write a positive number"
        problems.append(_wrong("--weight", str(options.weight), "prioritizeVerb needs a weight above 0", do))
    try:
        if duration.of_option(options.http_timeout, "--http-timeout") > MOST_SECONDS:
            why = "a scheduler places no other pod while it waits for an extender that hangs"
            problems.append(_wrong("--http-timeout", options.http_timeout, why, f"write {MOST_SECONDS:g}s or less"))
    except InputError as error:
        problems.extend(error.problems)
    if not options.url_prefix.startswith(("http://", "https://")):
        do = "write it like http://127.0.0.1:9318"
        problems.append(_wrong("--url-prefix", options.url_prefix, "no http or https address", do))
    files = {"--ca-file": options.ca_file, "--client-cert-file": options.client_cert_file}
    files["--client-key-file"] = options.client_key_file
    for option, file in files.items():
        if options.url_prefix.startswith("https://") and not file:
            why = "the extender answers over HTTPS only to who shows a certificate of its CA, and shows one itself"
            problems.append(_wrong(option, file, why, f"name the file as kube-scheduler sees it: {_WHERE[option]}"))
    for name in options.managed_resources:
        if not _EXTENDED.match(name) or name.partition("/")[0].endswith("kubernetes.io"):
            why = "not an extended resource: kube-scheduler takes no native one here, and none of kubernetes.io"
            problems.append(_wrong("--managed-resource", name, why, "name one like example.com/gpu, or leave it out"))
    if problems:
        raise InputError(problems)


_WHERE = {
    "--ca-file": "/etc/kubernetes/koordlite/ca.crt",
    "--client-cert-file": "/etc/kubernetes/koordlite/tls.crt",
    "--client-key-file": "/etc/kubernetes/koordlite/tls.key",
}
"""Where the documentation has them."""


def _wrong(option: str, value: str, why: str, do: str) -> Problem:
    return Problem("command line", option, value, why, do)


def _yaml(document: dict[str, Any]) -> str:
    return str(yaml.safe_dump(document, sort_keys=False))
