"""CPUs that the DRA driver for CPUs gave to ResourceClaims, by the files it leaves for the container runtime.

Each claim is in a specification of the Container Device Interface: a device of kind `dra.k8s.io/cpu` with the
environment variable `DRA_CPUSET_UID=CPUS`. Source: kubernetes-sigs/dra-driver-cpu.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from koordlite.model.cpuset import EMPTY, CPUSet, union
from koordlite.resctrl.files import LocalFiles

FOLDER = "/var/run/cdi"
CPU_KIND = "dra.k8s.io/cpu="
"""Beginning of the names of such devices."""
_FILES = ("dra.k8s.io-cpu_", "dra.cpu.")
"""Beginning of the names: a file for each claim, and before the driver's 0.2 one for all."""
_VARIABLE = "DRA_CPUSET_"


class _Edits(msgspec.Struct, frozen=True):
    env: tuple[str, ...] = ()


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: _Edits = _Edits()


class _Specification(msgspec.Struct, frozen=True):
    kind: str
    devices: tuple[_Device, ...] = ()


def parse(raw: bytes) -> dict[str, CPUSet]:
    """CPUs by the full name of each device; ValueError where it is no such specification."""
    try:
        spec = msgspec.json.decode(raw, type=_Specification)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from error
    return {f"{spec.kind}={device.name}": _cpus(device.container_edits.env) for device in spec.devices}


def _cpus(env: Collection[str]) -> CPUSet:
    pairs = (each.partition("=") for each in env)
    return union(CPUSet.parse(value) for name, _, value in pairs if name.startswith(_VARIABLE)) or EMPTY


def read(folder: str, names: Collection[str]) -> tuple[Mapping[str, CPUSet], str]:
    """CPUs of those of the devices `names` that the specifications in `folder` have, and what is wrong with them."""
    found: dict[str, CPUSet] = {}
    wrong, files = "", LocalFiles()
    try:
        listed = [name for name in files.list(folder) if name.startswith(_FILES) and name.endswith(".json")]
    except OSError as error:
        return found, f"{folder}: {error.strerror}"
    for name in listed:
        try:
            found.update(parse(files.read(f"{folder}/{name}")))
        except FileNotFoundError:
            continue  # The claim was given back in between.
        except (OSError, ValueError) as error:
            wrong = f"{folder}/{name}: {error}"
    return {name: found[name] for name in names if found.get(name)}, wrong
