"""Which API server, and with which credentials: a kubeconfig, or the service account of this pod."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from koordlite.model.errors import ConfigError, Problem

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

CONNECTIONS = 8
"""Connections kept open: a watch each, and some for requests."""


def load(kubeconfig: str | None, context: str | None, *, user_agent: str) -> Any:
    """A `kubernetes.client.ApiClient` with nothing but configuration and transport in use.

    Tokens of a service account are read again each minute, those of an exec plugin when they expire. ConfigError when
    there are no usable credentials.
    """
    from kubernetes.client.configuration import Configuration

    settings = Configuration()
    if kubeconfig or context:
        _from_file(settings, kubeconfig, context)
    else:
        _from_surroundings(settings)
    return _client(settings, user_agent)


def bare(
    url: str, *, user_agent: str, ca_file: str = "", verify: bool = True, token: Callable[[], str] | None = None
) -> Any:
    """A client for a server that no kubeconfig names, such as kubelet; `token` is asked before each request."""
    from kubernetes.client.configuration import Configuration

    settings = Configuration(host=url)
    settings.verify_ssl = verify
    settings.ssl_ca_cert = ca_file or None
    if token is not None:

        def refresh(configuration: Configuration) -> None:
            configuration.api_key["BearerToken"] = f"Bearer {token()}"

        # The library looks for the key before it asks for a fresh one.
        settings.api_key["BearerToken"] = ""
        settings.refresh_api_key_hook = refresh  # type: ignore[assignment]
    return _client(settings, user_agent)


def _client(settings: Configuration, user_agent: str) -> Any:
    from kubernetes.client.api_client import ApiClient

    # The transport would sleep out a Retry-After by itself, without anybody knowing.
    settings.retries = False
    settings.connection_pool_maxsize = CONNECTIONS
    settings.keep_alive = True
    client = ApiClient(configuration=settings)
    client.user_agent = user_agent
    return client


def _from_file(settings: Configuration, kubeconfig: str | None, context: str | None) -> None:
    import yaml
    from kubernetes import config

    source = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=settings, persist_config=False
        )
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        field = "kubeconfig" if context is None else f"kubeconfig, context {context}"
        why = " ".join(str(error).split()) or type(error).__name__
        do = "name a kubeconfig that kubectl can use, and one of its contexts"
        raise ConfigError(Problem("API server access", field, source, why, do)) from error


def _from_surroundings(settings: Configuration) -> None:
    from kubernetes import config

    try:
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError) as error:
        named = os.environ.get("KUBECONFIG", "")
        if named:
            _from_file(settings, named, None)
            return
        tried = f"the service account of this pod: {error}; the environment variable KUBECONFIG: not set"
        do = "name one with --kubeconfig, or run inside a cluster"
        raise ConfigError(Problem("API server access", "kubeconfig", "", f"tried {tried}", do)) from error
