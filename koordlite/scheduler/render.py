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
_EXTENDED = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from one installation to the next."""

    scheduler_name: str = "koordlite-scheduler"
    namespace: str = "koordlite-system"
    """Of the second scheduler's lease."""
    url_prefix: str = LOOPBACK
    weight: int = 10
    http_timeout: str = "10s"
    required: bool = False
    """Pods wait while the extender is away; otherwise it is passed over."""
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
        required=args.required,
        managed_resources=tuple(args.managed_resource),
        binds=not args.no_bind,
        ca_file=args.ca_file,
        client_cert_file=args.client_cert_file,
        client_key_file=args.client_key_file,
    )


def text(what: Literal["configuration", "stanza"], options: Options) -> str:
    """YAML for `options`; InputError for those with which the scheduler does not start."""
    _check(options)
    stanza: dict[str, Any] = {"extenders": [_extender(options)]}
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
        "profiles": [{"schedulerName": options.scheduler_name}],
    }
    return _yaml({**head, **stanza})


def _extender(options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {
        "urlPrefix": options.url_prefix,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        # Without it the scheduler evicts pods for one that the filter then refuses.
        "preemptVerb": "preempt",
        **({"bindVerb": "bind"} if options.binds else {}),
        "weight": options.weight,
        "nodeCacheCapable": True,
        "httpTimeout": options.http_timeout,
        "ignorable": not options.required,
    }
    if options.url_prefix.startswith("https://"):
        files = {"caFile": options.ca_file, "certFile": options.client_cert_file, "keyFile": options.client_key_file}
        found |= {"enableHTTPS": True, "tlsConfig": {name: file for name, file in files.items() if file}}
    if options.managed_resources:
        found["managedResources"] = [{"name": name} for name in options.managed_resources]
    return found


def _check(options: Options) -> None:
    problems = []
    if options.weight < 1:
        do = "write a positive number"
        problems.append(_wrong("--weight", str(options.weight), "prioritizeVerb needs a weight above 0", do))
    try:
        duration.of_option(options.http_timeout, "--http-timeout")
    except InputError as error:
        problems.extend(error.problems)
    if not options.url_prefix.startswith(("http://", "https://")):
        do = "write it like http://127.0.0.1:9318"
        problems.append(_wrong("--url-prefix", options.url_prefix, "no http or https address", do))
    for name in options.managed_resources:
        if not _EXTENDED.match(name) or name.partition("/")[0].endswith("kubernetes.io"):
            why = "not an extended resource: kube-scheduler takes no native one here, and none of kubernetes.io"
            problems.append(_wrong("--managed-resource", name, why, "name one like example.com/gpu, or leave it out"))
    if problems:
        raise InputError(problems)


def _wrong(option: str, value: str, why: str, do: str) -> Problem:
    return Problem("command line", option, value, why, do)


def _yaml(document: dict[str, Any]) -> str:
    return str(yaml.safe_dump(document, sort_keys=False))
