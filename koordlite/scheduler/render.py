"""The scheduler's configuration: a KubeSchedulerConfiguration for a second scheduler, or the stanza for the cluster's
own.

What kube-scheduler 1.36 refuses at its start is refused here already, with what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import yaml

from koordlite.model import duration
from koordlite.model.errors import InputError, Problem, noting

LOOPBACK = "http://127.0.0.1:9318"
MOST_SECONDS = 1.0
"""Longest `httpTimeout`: the scheduler asks about one pod after the other, three times each, and waits for answers."""
_EXTENDED = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Values that differ from one installation to the next: the options of the command, under their names."""

    scheduler_name: str = "koordlite-scheduler"
    namespace: str = "koordlite-system"
    """Namespace of the second scheduler's lease."""
    url_prefix: str = ""
    """Empty: `LOOPBACK`."""
    weight: int = 10
    http_timeout: str = "1s"
    required: bool = False
    """Pods wait while the extender is away; `ignorable`: it is passed over then. Neither: those of a second scheduler
    wait, since they asked for it, and those of the cluster's own do not."""
    ignorable: bool = False
    managed_resource: Sequence[str] = ()
    no_bind: bool = False
    ca_file: str = ""
    client_cert_file: str = ""
    client_key_file: str = ""

    @property
    def url(self) -> str:
        """URL of the extender."""
        return self.url_prefix or LOOPBACK


def text(what: Literal["configuration", "stanza"], options: Options) -> str:
    """YAML for `options`; InputError for those with which the scheduler does not start."""
    _check(options)
    required = options.required or (what == "configuration" and not options.ignorable)
    document: dict[str, Any] = {}
    if what == "configuration":
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {
                "leaderElect": True,
                "resourceName": options.scheduler_name,
                "resourceNamespace": options.namespace,
            },
            # Else it looks at a part of a large cluster's nodes, and takes the refusal of all these for one of all.
            "profiles": [{"schedulerName": options.scheduler_name, "percentageOfNodesToScore": 100}],
        }
    document["extenders"] = [_extender(options, required=required)]
    return str(yaml.safe_dump(document, sort_keys=False))


def _extender(options: Options, *, required: bool) -> dict[str, Any]:
    stanza: dict[str, Any] = {
        "urlPrefix": options.url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        # Without it the scheduler evicts pods for one that the filter then refuses.
        "preemptVerb": "preempt",
        **({} if options.no_bind else {"bindVerb": "bind"}),
        "weight": options.weight,
        "nodeCacheCapable": True,
        "httpTimeout": options.http_timeout,
        # Ignorable, it is passed over also when it refuses a binding: the scheduler then binds the pod itself.
        "ignorable": not required,
    }
    if options.url.startswith("https://"):
        files = {"caFile": options.ca_file, "certFile": options.client_cert_file, "keyFile": options.client_key_file}
        stanza |= {"enableHTTPS": True, "tlsConfig": {name: file for name, file in files.items() if file}}
    if options.managed_resource:
        stanza["managedResources"] = [{"name": name} for name in options.managed_resource]
    return stanza


def _check(options: Options) -> None:
    problems = []
    if options.weight < 1:
        do = "write a positive number"
        problems.append(_wrong("--weight", str(options.weight), "prioritizeVerb needs a weight above 0", do))
    with noting(problems):
        if duration.of_option(options.http_timeout, "--http-timeout") > MOST_SECONDS:
            why = "a scheduler places no other pod while it waits for an extender that hangs"
            problems.append(_wrong("--http-timeout", options.http_timeout, why, f"write {MOST_SECONDS:g}s or less"))
    if not options.url.startswith(("http://", "https://")):
        do = "write it like http://127.0.0.1:9318"
        problems.append(_wrong("--url-prefix", options.url, "no http or https address", do))
    files = {"--ca-file": options.ca_file, "--client-cert-file": options.client_cert_file}
    files["--client-key-file"] = options.client_key_file
    for option, file in files.items():
        if options.url.startswith("https://") and not file:
            why = "the extender answers over HTTPS only to who shows a certificate of its CA, and shows one itself"
            problems.append(_wrong(option, file, why, f"name the file as kube-scheduler sees it: {_WHERE[option]}"))
    for name in options.managed_resource:
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
"""Paths of the documentation."""


def _wrong(option: str, value: str, why: str, do: str) -> Problem:
    return Problem("command line", option, value, why, do)
