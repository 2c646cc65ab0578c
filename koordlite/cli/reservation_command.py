"""`koordlite reservation list|explain`: read from the API server, with the rights of whoever asks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from koordlite import commandline
from koordlite.model import printable
from koordlite.model.errors import KoordliteError

if TYPE_CHECKING:
    from koordlite.kube.client.access import Api
    from koordlite.reservation.world import World


def reservation(args: argparse.Namespace) -> int:
    """List, or explain one."""
    from koordlite.kube.client.access import connect
    from koordlite.reservation import report
    from koordlite.reservation.placeholder import PlaceholderSettings

    world = _read(connect(args.kubeconfig, args.context, user_agent="koordlite"))
    if args.action == "list":
        listed = report.all_of(world, time.time())
        names = (f"reservation.scheduling.koordinator.sh/{each['name']}" for each in listed)
        lines = names if args.output == "name" else report.table(listed, wide=args.output == "wide")
        commandline.print_answer(args.output, "Reservations", {"reservations": listed}, lines)
        return 0
    document = report.one_of(world, args.name, PlaceholderSettings(), time.time())
    if document is None:
        others = ", ".join(sorted(world.reservations)[:8]) or "none"
        raise KoordliteError(f"there is no Reservation {args.name}; there are {others}")
    commandline.print_answer(args.output, "Reservation", {"reservation": document}, report.details(document))
    return 0


def _read(api: Api) -> World:
    """Everything once. KoordliteError when Reservations are not served."""
    from koordlite.kube.client.access import ApiError
    from koordlite.model.wire.objects import NodeObject, PodObject
    from koordlite.model.wire.reservation import ReservationObject
    from koordlite.reservation.world import World
    from koordlite.reservation.writer import RESERVATIONS

    world = World()
    try:
        _each(api, RESERVATIONS, ReservationObject, world.put_reservation)
    except ApiError as error:
        if error.unknown_resource:
            why = "this cluster has no Reservations: apply manifests/crds/koordinator, or install Koordinator"
            raise KoordliteError(why) from error
        raise
    _each(api, "/api/v1/nodes", NodeObject, world.put_node)
    _each(api, "/api/v1/pods", PodObject, world.put_pod)
    return world


def _each(api: Api, path: str, shape: type[Any], put: Callable[[Any], object]) -> None:
    import msgspec

    decoder = msgspec.json.Decoder(shape)
    for item in api.collect(path).items:
        try:
            put(decoder.decode(item))
        except msgspec.DecodeError as error:
            print(printable.lines(f"an object of {path} cannot be read and is left out: {error}"))
