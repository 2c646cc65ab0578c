"""Kubelet's own HTTP: its pods and its configuration, at its port, through the API server, or at the read-only port."""

from __future__ import annotations

import functools
import pathlib

import msgspec

from koordlite.kube.client import credentials, paging
from koordlite.kube.client.access import NODE_ANSWER_BYTES, Api, ApiError, ApiUnreachable
from koordlite.kube.client.answers import RequestTimes
from koordlite.kube.kubelet.configz import parse_configz
from koordlite.kube.settings import ClusterSettings
from koordlite.model.picture.kubelet import Kubelet

TIMEOUT = (2.0, 5.0)
_FOR_ANOTHER = "certificate is not valid for"
"""OpenSSL's words for a trusted certificate that is for another name or address."""


class KubeletHttp:
    """Asks one kubelet. Errors are those of `Api.request`."""

    def __init__(
        self,
        api: Api,
        *,
        prefix: str = "",
        otherwise: Api | None = None,
        read_only: Api | None = None,
        times: RequestTimes | None = None,
    ) -> None:
        """`prefix` is the path of the proxy when `api` is the API server. `otherwise` is the same kubelet by another
        name, when its certificate is not for the first. `read_only` is asked for pods only, when `api` refuses or does
        not answer."""
        self._api, self._prefix, self._otherwise, self._read_only = api, prefix, otherwise, read_only
        self._times = times or RequestTimes()

    def config(self) -> Kubelet:
        """Kubelet's configuration; InputError when it is not readable."""
        return parse_configz(self._get(self._api, self._prefix, "/configz"))

    def pods(self) -> list[msgspec.Raw]:
        """Kubelet's pods, each in JSON, in no order; pods that have ended are among them."""
        try:
            raw = self._get(self._api, self._prefix, "/pods")
        except (ApiError, ApiUnreachable):
            if self._read_only is None:
                raise
            raw = self._get(self._read_only, "", "/pods")
        return paging.decode(raw, "/pods").objects

    def _get(self, api: Api, prefix: str, path: str) -> bytes:
        with self._times.measured("GET", path):
            try:
                return api.request("GET", f"{prefix}{path}", timeout=TIMEOUT).body
            except ApiUnreachable as error:
                if api is not self._api or self._otherwise is None or _FOR_ANOTHER not in str(error):
                    raise
                body = self._otherwise.request("GET", path, timeout=TIMEOUT).body
                self._api, self._otherwise = self._otherwise, self._api
                return body


def connect(
    settings: ClusterSettings,
    address: str,
    *,
    node_name: str,
    api: Api,
    user_agent: str,
    times: RequestTimes | None = None,
) -> KubeletHttp | None:
    """Kubelet as the settings say; None when it is not to be asked, or its address is not known yet."""
    if settings.kubelet == "off":
        return None
    bounded = functools.partial(Api, answer_bytes=NODE_ANSWER_BYTES)
    host = f"[{address}]" if ":" in address else address
    plain = settings.kubelet_read_only_port
    read_only = (
        bounded(credentials.bare(f"http://{host}:{plain}", user_agent=user_agent)) if plain and address else None
    )
    if settings.kubelet == "proxy":
        return KubeletHttp(api, prefix=f"/api/v1/nodes/{node_name}/proxy", read_only=read_only, times=times)
    if not address:
        return None

    # The token of the service account; none outside a pod, where it is not there and nobody named another.
    path = settings.kubelet_token_file
    absent = path == ClusterSettings().kubelet_token_file and not pathlib.Path(path).exists()

    def client(server_name: str) -> Api:
        return bounded(
            credentials.bare(
                f"https://{host}:{settings.kubelet_port}",
                user_agent=user_agent,
                ca_file=settings.kubelet_ca_file or api.ca_file,
                verify=settings.kubelet_verify,
                server_name=server_name,
                token=None if absent else credentials.token_reader(path),
                like=api.client,
            )
        )

    # A certificate that kubelet signed itself is for the node's name alone; one of the cluster may be for either.
    names = (node_name, "") if not settings.kubelet_address else ("", node_name)
    return KubeletHttp(client(names[0]), otherwise=client(names[1]), read_only=read_only, times=times)
