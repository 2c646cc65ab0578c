"""Pods as migration sees them: values made from single objects, without a whole picture of the cluster."""

from __future__ import annotations

import msgspec

from descheduler.framework import PodView
from koordlite.model import times
from koordlite.model.pod import pod_reader
from koordlite.model.wire import objects


def view(obj: objects.PodObject) -> PodView:
    """The pod; one without a uid has its name instead."""
    value = pod_reader.from_wire(obj)
    if not value.uid:
        value = msgspec.structs.replace(value, uid=value.key)
    made = times.parse_or_none(obj.metadata.creation_timestamp)
    return PodView(value, obj, obj.spec.node_name, made)


def controller(pod_view: PodView) -> objects.OwnerReference | None:
    """Who keeps the number of such pods; None for a bare pod."""
    return next((owner for owner in pod_view.object.metadata.owner_references or () if owner.controller), None)


def controller_uid(pod_view: PodView) -> str:
    """Its uid; empty for a bare pod."""
    found = controller(pod_view)
    return found.uid if found else ""


def available(pod_view: PodView) -> bool:
    """It has not ended, is not going, and is ready to serve."""
    value = pod_view.pod
    conditions = pod_view.object.status.conditions or ()
    serves = any(c.type == "Ready" and c.status == "True" for c in conditions)
    return not value.finished and not value.deleting and serves
