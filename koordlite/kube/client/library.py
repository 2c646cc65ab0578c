"""The official client without what this program does not use.

Importing any module of it runs the package's own module, which imports informers, web sockets, OAuth and JSON Schema:
12 MiB. Here its packages are entered as they are on disk, and run only when a name of theirs is asked for. So is the
part of urllib3 for HTTP/2, which looks for the version of a library that is not used, by 0.6 MiB of modules. The reader
of kubeconfigs imports OAuth and the client with pydantic, 14 MiB, to renew the tokens of OpenID Connect: both are put
off until a kubeconfig has such a user.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

PACKAGES = ("urllib3", "urllib3.http2", "kubernetes", "kubernetes.utils", "kubernetes.config", "kubernetes.client")
"""Packages with modules that are needed and a module of their own that is not."""
_KEPT_IN = {"kubernetes.client.Configuration": "kubernetes.client.configuration"}
"""Names of a package that need only one of its modules."""
_READER = "kubernetes.config.kube_config"


def prepare() -> None:
    """Before the first import of the client; does nothing where it was imported already."""
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

    def run(wanted: str) -> Any:
        if wanted.startswith("__") and wanted != "__version__":
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        if f"{name}.{wanted}" in _KEPT_IN:
            return getattr(importlib.import_module(_KEPT_IN[f"{name}.{wanted}"]), wanted)
        if importlib.util.find_spec(f"{name}.{wanted}"):
            return importlib.import_module(f"{name}.{wanted}")
        vars(module).pop("__getattr__", None)
        loader.exec_module(module)
        return getattr(module, wanted)

    vars(module)["__getattr__"] = run
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
