"""A server as programs open one: at an address that people wrote, over TLS or not, for those who may ask there."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from koordlite.http.guard import Guard, by_cluster
from koordlite.http.local_token import is_loopback
from koordlite.http.server import Ask, Change, Server
from koordlite.model.errors import InputError, Problem

if TYPE_CHECKING:
    from koordlite.http.certificate import Certificate, SelfSigned
    from koordlite.http.connections import Limits
    from koordlite.kube.client.access import Api

LOG = logging.getLogger(__name__)


def address_of(text: str, setting: tuple[str, str], *, why: str, do: str, everywhere: bool = True) -> tuple[str, int]:
    """Address and port in `ADDRESS:PORT`; InputError with these words where there is no port, or no address either
    unless that may mean `everywhere`."""
    address, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and (address or everywhere)):
        raise InputError(Problem(*setting, text, why, do))
    return address.strip("[]"), int(port)


def listener(
    address: str,
    port: int,
    answer: Ask,
    *,
    change: Change | None = None,
    post: Change | None = None,
    certificate: Certificate | SelfSigned | None = None,
    in_clear: Problem | str = "",
    api: Api | None = None,
    audience: str = "",
    local_token: str = "",
    token_to_read: bool = False,
    token_to_post: bool = False,
    all_read: bool = False,
    clients: Collection[str] | None = None,
    guard: type[Guard] = Guard,
    limits: Limits | None = None,
    setting: tuple[str, str] = ("command line", "--listen"),
) -> Server:
    """Listen there. Tokens are reviewed by `api`, for this `audience`; who else may ask: see `Guard`.

    `in_clear`: where other machines can connect and there is no certificate, nor, for POST, one of each client, the
    problem that is raised as InputError, or the setting that a warning names.
    """
    exposed = not is_loopback(address)
    if exposed and in_clear and (certificate is None or (post is not None and clients is None)):
        if isinstance(in_clear, Problem):
            raise InputError(in_clear)
        LOG.warning("tokens are sent to %s in the clear: name a certificate with %s", address, in_clear)
    review = by_cluster(api, audience) if api else None
    judge = guard(
        exposed=exposed,
        local_token=local_token,
        review=review,
        token_to_read=token_to_read,
        token_to_post=token_to_post,
        all_read=all_read,
        clients=clients,
    )
    return Server(
        address,
        port,
        answer,
        change=change,
        post=post,
        guard=judge,
        certificate=certificate,
        limits=limits,
        setting=setting,
    )
