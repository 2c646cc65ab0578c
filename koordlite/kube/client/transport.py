"""One request over the official client's transport: TLS, proxies and connections are its own, and so is the token.

Its `ApiClient` is not used: it imports pydantic, dateutil and a pool of processes to turn answers into models.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration
    from urllib3.response import BaseHTTPResponse


class Transport:
    """A server, its connections and how to name oneself there. Safe to use from several threads."""

    def __init__(self, configuration: Configuration, user_agent: str) -> None:
        from kubernetes.client.rest import RESTClientObject

        self.configuration = configuration
        self._user_agent = user_agent
        self._rest = RESTClientObject(configuration)

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        body: object,
        timeout: tuple[float, float],
    ) -> BaseHTTPResponse:
        """Ask once; the answer's content is still unread. `body` is JSON as Python values, None for none.

        Raises what the libraries do: ApiException, ConfigException of an exec plugin, urllib3's HTTPError, OSError.
        """
        url = f"{self.configuration.host}{path}"
        if query:
            url = f"{url}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"
        whole = {**headers, "User-Agent": self._user_agent, **self._credentials()}
        ask: Any = self._rest.request
        response: BaseHTTPResponse = ask(method, url, headers=whole, body=body, _request_timeout=timeout).response
        return response

    def _credentials(self) -> dict[str, str]:
        """The token, fetched again where the configuration has a hook for that."""
        setting: Any = self.configuration.auth_settings().get("BearerToken") or {}
        return {setting["key"]: setting["value"]} if setting.get("value") else {}
