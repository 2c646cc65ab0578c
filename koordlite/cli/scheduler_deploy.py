"""`koordlite scheduler validate|deploy|remove`: the objects of rendered manifests against a cluster.

Each is asked of the API server with `dryRun=All` first: it runs admission and validation, and stores nothing.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import msgspec
import yaml

from koordlite.kube.client.access import Api, ApiError, connect
from koordlite.model import printable
from koordlite.model.errors import UNREADABLE, InputError, Problem, reason
from koordlite.model.reading import yaml_bounds

_FIRST = ("Namespace", "CustomResourceDefinition")
"""Kinds that others need to be there; they stay at a removal, since it may hold what is not ours."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
Manifest = dict[str, Any]


def run(args: argparse.Namespace) -> int:
    """Carry out the action. 1 when an object is refused; nothing is stored then that was not before."""
    api = connect(args.kubeconfig, args.context, user_agent="koordlite-scheduler-deploy")
    manifests = sorted(_manifests(args.file), key=lambda each: each["kind"] not in _FIRST)
    if args.action == "remove":
        return _remove(api, manifests, dry_run=args.dry_run)
    brought = {_brings(each) for each in manifests if each["kind"] in _FIRST}
    refused = False
    for dry in (True,) if args.action == "validate" else (True, False):
        for each in manifests:
            word, fault = _put(api, each, brought, dry=dry)
            later = not dry or args.action == "validate" or fault
            refused = refused or fault
            if later:
                print(printable.lines(f"{_name(each)}: {word}{' (server dry run)' if dry else ''}"))
        if refused:
            break
    return 1 if refused else 0


def _brings(manifest: Manifest) -> tuple[str, str]:
    """Parts of this object that others of the files may need: a namespace, or a kind."""
    if manifest["kind"] == "Namespace":
        return "Namespace", manifest["metadata"]["name"]
    return "kind", str(((manifest.get("spec") or {}).get("names") or {}).get("kind"))


def _put(api: Api, manifest: Manifest, brought: set[tuple[str, str]], *, dry: bool) -> tuple[str, bool]:
    """Result, and whether that is a refusal. `brought`: what comes with the same files."""
    collection, missing = _place(api, manifest)
    if missing:
        comes = dry and ("kind", manifest["kind"]) in brought
        return f"{'not checked' if comes else 'refused'}: {missing}", not comes
    query = (("dryRun", "All"),) if dry else ()
    name = manifest["metadata"]["name"]
    try:
        try:
            before = api.request("GET", f"{collection}/{name}").read(dict)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            api.request("POST", collection, query=query, body=_annotated(manifest))
            return "created", False
        patch = _annotated(manifest)
        _remove_dropped(patch, (before["metadata"].get("annotations") or {}).get(_LAST_APPLIED))
        after = api.request("PATCH", f"{collection}/{name}", query=query, body=patch).read(dict)
    except ApiError as error:
        namespace = manifest["metadata"].get("namespace")
        if dry and error.status == HTTPStatus.NOT_FOUND and ("Namespace", namespace) in brought:
            return f"not checked: the namespace {namespace} is not there yet", False
        return f"refused: {error}", True
    for each in (before, after):
        for volatile in ("resourceVersion", "managedFields", "generation"):
            each["metadata"].pop(volatile, None)
    return ("unchanged" if before == after else "configured"), False


def _annotated(manifest: Manifest) -> Manifest:
    """A copy that remembers the manifest where kubectl does, so that `kubectl apply` and the next deploy can tell which
    fields were dropped since. Without it a capability that was taken out of a manifest would stay on the server."""
    text = msgspec.json.encode(manifest).decode()
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), _LAST_APPLIED: text}}}


def _remove_dropped(patch: Manifest, last_applied: str | None) -> None:
    """Have the merge patch remove fields that the last manifest had and this one lacks. Lists are replaced whole."""
    try:
        last = msgspec.json.decode(last_applied or "{}")
    except UNREADABLE:  # Anybody may write annotations: one that is no JSON says nothing about fields.
        return
    pairs = [(patch, last)]
    for new, old in pairs:
        for key in old if isinstance(old, dict) else ():
            if key not in new:
                new[key] = None
            elif isinstance(new[key], dict):
                new[key] = dict(new[key])
                pairs.append((new[key], old[key]))


def _remove(api: Api, manifests: list[Manifest], *, dry_run: bool) -> int:
    refused = False
    for each in reversed(manifests):
        if each["kind"] in _FIRST:
            print(printable.lines(f"{_name(each)}: kept, since it may hold what is not ours"))
            continue
        # A deletion with a body takes its options from there alone, dryRun too.
        body = {"propagationPolicy": "Background", **({"dryRun": ["All"]} if dry_run else {})}
        collection, word = _place(api, each)
        if not word:
            try:
                api.request("DELETE", f"{collection}/{each['metadata']['name']}", body=body)
                word = "deleted"
            except ApiError as error:
                missing = error.status == HTTPStatus.NOT_FOUND
                word, refused = ("not there", refused) if missing else (f"refused: {error}", True)
        print(printable.lines(f"{_name(each)}: {word}{' (server dry run)' if dry_run else ''}"))
    return 1 if refused else 0


def _place(api: Api, manifest: Manifest) -> tuple[str, str]:
    """Path of the object's collection at the API server, and why it is not known."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    group = f"/apis/{version}" if "/" in version else f"/api/{version}"
    try:
        listed = api.request("GET", group).read(dict)["resources"]
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        listed = []
    entry = next((each for each in listed if each["kind"] == kind and "/" not in each["name"]), None)
    if entry is None:
        return "", f"the cluster has no {kind} of {version}"
    namespace = f"/namespaces/{manifest['metadata'].get('namespace', 'default')}" if entry["namespaced"] else ""
    return f"{group}{namespace}/{entry['name']}", ""


def _manifests(files: list[str]) -> Iterator[Manifest]:
    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else pathlib.Path(file).read_text(encoding="utf-8")
            documents = [each for each in yaml.safe_load_all(yaml_bounds.checked(text)) if each is not None]
        except (OSError, *yaml_bounds.UNREADABLE) as error:
            do = "name a file of manifests, for example what kubectl kustomize printed"
            raise InputError(Problem(file, "$", "", reason(error), do)) from error
        for number, each in enumerate(documents, 1):
            meta = each.get("metadata") if isinstance(each, dict) else None
            words = [each.get(key) for key in ("apiVersion", "kind")] if isinstance(each, dict) else []
            if not isinstance(meta, dict) or not all(isinstance(word, str) for word in (*words, meta.get("name"))):
                why, do = "no apiVersion, kind and metadata.name", "write each object whole"
                raise InputError(Problem(file, f"document {number}", "", why, do))
            yield each


def _name(manifest: Manifest) -> str:
    meta = manifest["metadata"]
    return "/".join([manifest["kind"], *([meta["namespace"]] if "namespace" in meta else []), meta["name"]])
