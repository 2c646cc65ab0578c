"""API server and credentials: a kubeconfig, or the service account of this pod; by the official client, without what
this program does not use of it.

Importing any module of it runs the package's own module, which imports informers, web sockets, OAuth and JSON Schema:
12 MiB. Here its packages are entered as they are on disk, and run only when a name of theirs is asked for. So is the
part of urllib3 for HTTP/2, which looks for the version of a library that is not used, by 0.6 MiB of modules. The reader
of kubeconfigs imports OAuth and the client with pydantic, 14 MiB, to renew the tokens of OpenID Connect: both are put
off until a kubeconfig has such a user.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
import pathlib
import sys
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from koordlite.model.errors import ConfigError, Problem, reason

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration
    from urllib3.response import BaseHTTPResponse


class Transport:
    """A server, its connections and how to name oneself there. Safe to use from several threads.
    TLS, proxies, connections and the token are the official client's. Its `ApiClient` is not used: it imports pydantic,
    dateutil and a pool of processes to turn answers into models."""

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
        Raises what the libraries do: ApiException, ConfigException of an exec plugin, urllib3's HTTPError, OSError."""
        url = f"{self.configuration.host}{path}"
        if query:
            url = f"{url}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}"
        # The token is fetched again where the configuration has a hook for that.
        setting: Any = self.configuration.auth_settings().get("BearerToken") or {}
        token = {setting["key"]: setting["value"]} if setting.get("value") else {}
        whole = {**headers, "User-Agent": self._user_agent, **token}
        ask: Any = self._rest.request
        response: BaseHTTPResponse = ask(method, url, headers=whole, body=body, _request_timeout=timeout).response
        return response


TOKEN_SECONDS = 60.0
"""A token in a file is read again after this: whoever replaces it lets the old one be good for longer."""
CONNECTIONS = 40
"""Connections kept open at most: twenty bindings at a time, a watch of each kind, and reviews."""


def load(kubeconfig: str | None, context: str | None, *, user_agent: str) -> Transport:
    """The server that a kubeconfig names, or the one of this pod's cluster.
    Tokens of a service account and of a kubeconfig's tokenFile are read again each minute, those of an exec plugin when
    they expire. ConfigError when there are no usable credentials."""
    prepare()
    from kubernetes.client.configuration import Configuration

    settings = Configuration()
    if kubeconfig or context:
        _from_file(settings, kubeconfig, context)
    else:
        _from_surroundings(settings)
    return _client(settings, user_agent)


def bare(
    url: str,
    *,
    user_agent: str,
    ca_file: str = "",
    verify: bool = True,
    server_name: str = "",
    token: Callable[[], str] | None = None,
    like: Transport | None = None,
) -> Transport:
    """A client for a server that no kubeconfig names, such as kubelet.
    Its certificate must be for `server_name` where that is given, else for the host of `url`. `token` is asked before
    each request; without it the credentials are those of the client `like`."""
    prepare()
    from kubernetes.client.configuration import Configuration

    settings = Configuration(host=url)
    settings.verify_ssl = verify
    settings.ssl_ca_cert = ca_file or None
    settings.tls_server_name = server_name or None
    if token is not None:
        _ask_for_key(settings, lambda: f"Bearer {token()}")
    elif like is not None:
        # Certificate and token alone: the other server's own hook would also take over its address.
        other = like.configuration
        settings.cert_file, settings.key_file = other.cert_file, other.key_file
        if "BearerToken" in other.api_key:
            _ask_for_key(settings, lambda: other.get_api_key_with_prefix("BearerToken") or "")
    if not verify:
        # The library warns at each request; whoever switched verification off knows.
        import warnings

        import urllib3

        warnings.simplefilter("ignore", urllib3.exceptions.InsecureRequestWarning)
    return _client(settings, user_agent)


def token_reader(path: str, now: Callable[[], float] = time.monotonic) -> Callable[[], str]:
    """The token in the file, read again when it may have been replaced; OSError when it cannot be read."""
    current, read_at = "", float("-inf")

    def token() -> str:
        nonlocal current, read_at
        if now() - read_at >= TOKEN_SECONDS:
            current = pathlib.Path(path).read_text(encoding="ascii", errors="replace").strip()
            read_at = now()
        if not current:
            raise OSError(errno.ENODATA, "the token file is empty", path)
        return current

    return token


def _ask_for_key(settings: Configuration, key: Callable[[], str]) -> None:
    """Ask for the whole header before each request."""

    def refresh(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = key()

    # The library looks for the key before it asks for a fresh one.
    settings.api_key["BearerToken"] = ""
    settings.refresh_api_key_hook = refresh  # type: ignore[assignment]


def _client(settings: Configuration, user_agent: str) -> Transport:
    # The transport would sleep out a Retry-After by itself, without anybody knowing.
    settings.retries = False
    settings.connection_pool_maxsize = CONNECTIONS
    settings.keep_alive = True
    return Transport(settings, user_agent)


def _from_file(settings: Configuration, kubeconfig: str | None, context: str | None) -> None:
    import yaml
    from kubernetes.config.config_exception import ConfigException

    reader = kube_config()
    source = kubeconfig or reader.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        reader.load_kube_config(
            config_file=kubeconfig, context=context, client_configuration=settings, persist_config=False
        )
    except (ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
        field = "kubeconfig" if context is None else f"kubeconfig, context {context}"
        missing = kubeconfig and not any(os.path.exists(os.path.expanduser(p)) for p in kubeconfig.split(os.pathsep))
        why = "there is no such file" if missing else reason(error)
        do = "name a kubeconfig that kubectl can use, and one of its contexts"
        raise ConfigError(Problem("API server access", field, source, why, do)) from error
    user, folder = _user(source, context)
    if user.get("tokenFile"):
        # The library reads it once.
        token = token_reader(str(folder / user["tokenFile"]))
        _ask_for_key(settings, lambda: f"Bearer {token()}")
    if user.get("exec") and not (settings.api_key or settings.cert_file):
        # The library goes on without credentials, which a server would answer as if permissions were missing.
        do = "run the command by hand: it has to print an ExecCredential with a token or a certificate"
        command = str(user["exec"].get("command", ""))
        raise ConfigError(Problem("API server access", "exec plugin", command, "it gave no credentials", do))


def _user(source: str, context: str | None) -> tuple[dict[str, Any], pathlib.Path]:
    """The kubeconfig's user, and the folder its paths are in. The library has read the files without complaint."""
    import yaml

    for path in filter(os.path.exists, map(os.path.expanduser, source.split(os.pathsep))):
        document = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
        context_name = context or document.get("current-context")
        contexts, users = ({e["name"]: e for e in document.get(kind) or ()} for kind in ("contexts", "users"))
        user_name = contexts.get(context_name, {}).get("context", {}).get("user")
        user = users.get(user_name, {}).get("user") or {}
        if user:
            return user, pathlib.Path(path).resolve().parent
    return {}, pathlib.Path()


def _from_surroundings(settings: Configuration) -> None:
    from kubernetes.config import incluster_config
    from kubernetes.config.config_exception import ConfigException

    try:
        incluster_config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        named = os.environ.get("KUBECONFIG", "")
        if named:
            _from_file(settings, named, None)
            return
        tried = f"the service account of this pod: {error}; the environment variable KUBECONFIG: not set"
        do = "name one with --kubeconfig, run inside a cluster, or name files (--cluster, --snapshot)"
        raise ConfigError(Problem("API server access", "kubeconfig", "", f"tried {tried}", do)) from error


PACKAGES = ("urllib3", "urllib3.http2", "kubernetes", "kubernetes.utils", "kubernetes.config", "kubernetes.client")
"""Packages with modules that are needed and a module of their own that is not."""
_KEPT_IN = {"kubernetes.client.Configuration": "kubernetes.client.configuration"}
"""Names of a package that need only one of its modules."""
_READER = "kubernetes.config.kube_config"


def prepare() -> None:
    """Prepare the first import of the client; do nothing where it was imported already."""
    for name in PACKAGES:
        if name not in sys.modules:
            _enter(name)


def kube_config() -> ModuleType:
    """The module that reads kubeconfigs; call `prepare` before."""
    if _READER in sys.modules:
        return sys.modules[_READER]
    oauth, session = ModuleType("oauthlib"), ModuleType("requests_oauthlib")
    vars(oauth)["__path__"] = []
    vars(oauth)["oauth2"] = _PutOff("oauthlib.oauth2")
    vars(session)["OAuth2Session"] = _PutOff("requests_oauthlib", "OAuth2Session")
    stand_ins = {"oauthlib": oauth, "oauthlib.oauth2": ModuleType("oauthlib.oauth2"), "requests_oauthlib": session}
    missing = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    client = vars(importlib.import_module("kubernetes.client"))
    without = "ApiClient" not in client
    sys.modules.update(missing)
    if without:
        client["ApiClient"] = _PutOff("kubernetes.client.api_client", "ApiClient")
    try:
        return importlib.import_module(_READER)
    finally:
        # Whoever else imports these gets the real ones.
        for name in missing:
            del sys.modules[name]
        if without:
            del client["ApiClient"]


class _PutOff:
    """A module, or a class of it, that is imported when it is used."""

    def __init__(self, module: str, name: str = "") -> None:
        self._module, self._name = module, name

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self._real()(*positional, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def _real(self) -> Any:
        module = importlib.import_module(self._module)
        return getattr(module, self._name) if self._name else module


def _enter(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return  # It is not installed: whoever imports it says so.
    loader, module = spec.loader, importlib.util.module_from_spec(spec)

    def run(attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__version__":
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        if f"{name}.{attribute}" in _KEPT_IN:
            return getattr(importlib.import_module(_KEPT_IN[f"{name}.{attribute}"]), attribute)
        if importlib.util.find_spec(f"{name}.{attribute}"):
            return importlib.import_module(f"{name}.{attribute}")
        vars(module).pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, attribute)

    vars(module)["__getattr__"] = run
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
