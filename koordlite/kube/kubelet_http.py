"""Kubelet's own HTTP: its pods and its configuration, at its port, through the API server, or at the read-only port."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import msgspec

from koordlite.kube import credentials, paging
from koordlite.kube.access import Api, ApiError, ApiUnreachable
from koordlite.kube.kubelet import KubeletConfig, parse_configz
from koordlite.kube.settings import ClusterSettings

TIMEOUT = (2.0, 5.0)
TOKEN_SECONDS = 60.0


class KubeletHttp:
    """Asks one kubelet. Errors are those of `Api.request`."""

    def __init__(self, api: Api, *, prefix: str = "", read_only: Api | None = None) -> None:
        """`prefix` is the path of the proxy when `api` is the API server; `read_only` is asked for pods only, when
        `api` refuses or does not answer."""
        self._api, self._prefix, self._read_only = api, prefix, read_only

    def config(self) -> KubeletConfig:
        """Kubelet's configuration; InputError when it is not readable."""
        return parse_configz(self._api.request("GET", f"{self._prefix}/configz", timeout=TIMEOUT).body)

    def pods(self) -> list[msgspec.Raw]:
        """Kubelet's pods, each in JSON, in no order; pods that have ended are among them."""
        try:
            raw = self._api.request("GET", f"{self._prefix}/pods", timeout=TIMEOUT).body
        except (ApiError, ApiUnreachable):
            if self._read_only is None:
                raise
            raw = self._read_only.request("GET", "/pods", timeout=TIMEOUT).body
        return paging.decode(raw, "/pods").items or []


def connect(
    settings: ClusterSettings, address: str, *, node_name: str, api: Api, user_agent: str
) -> KubeletHttp | None:
    """Kubelet as the settings say; None when it is not to be asked, or its address is not known yet."""
    if settings.kubelet == "off":
        return None
    host = f"[{address}]" if ":" in address else address
    plain = settings.kubelet_read_only_port
    read_only = Api(credentials.bare(f"http://{host}:{plain}", user_agent=user_agent)) if plain and address else None
    if settings.kubelet == "proxy":
        return KubeletHttp(api, prefix=f"/api/v1/nodes/{node_name}/proxy", read_only=read_only)
    if not address:
        return None
    client = credentials.bare(
        f"https://{host}:{settings.kubelet_port}",
        user_agent=user_agent,
        ca_file=settings.kubelet_ca_file or api.ca_file,
        verify=settings.kubelet_verify,
        token=_token_reader(settings.kubelet_token_file, time.monotonic),
    )
    return KubeletHttp(Api(client), read_only=read_only)


def _token_reader(path: str, monotonic: Callable[[], float]) -> Callable[[], str]:
    """The token in the file, read again when it may have been replaced; OSError when it cannot be read."""
    held, read_at = "", float("-inf")

    def token() -> str:
        nonlocal held, read_at
        if monotonic() - read_at >= TOKEN_SECONDS:
            with open(path, encoding="ascii", errors="replace") as file:
                held = file.read().strip()
            read_at = monotonic()
        if not held:
            raise OSError(errno.ENODATA, "the token file is empty", path)
        return held

    return token
