"""Files of cgroups about disks: limits, weights, cost model, targets, and what was read.

Weights and targets are kept, they change nothing here. Rules: `tg_set_limit` and `ioc_qos_write` of the kernel; the
cgroup-v2 document, "IO Interface Files".
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from koordlite.lab.cgroups.trees import Attribute, AttributeTable, Group
from koordlite.lab.machine import kernel_text
from koordlite.lab.machine.machine import DISKS
from koordlite.lab.machine.tree import refusal

READ = "rbps"
_LIMITS = {"rbps": "read_bps", "wbps": "write_bps", "riops": "read_iops", "wiops": "write_iops"}
_QOS = {"enable": "0", "ctrl": "auto", "rpct": "0.00", "rlat": "0", "wpct": "0.00", "wlat": "0"}
_MODEL = {"ctrl": "auto", "model": "linear"} | dict.fromkeys(
    ("rbps", "rseqiops", "rrandiops", "wbps", "wseqiops", "wrandiops"), "1"
)


def v2() -> AttributeTable:
    """io.max, io.weight and io.stat of groups; cost model and targets of the root."""
    return {
        "io.max": Attribute(_shown_limits, _set_limits, root=False),
        "io.weight": Attribute(lambda group: f"default 100\n{_lines(group, 'weight')}", _set_weight, root=False),
        "io.stat": Attribute(
            lambda group: _served(
                group, lambda disk, amount: f"{disk} rbytes={amount} wbytes=0 rios={amount // 4096} wios=0\n"
            )
        ),
        **_root_files("io."),
    }


def v1(extended: bool) -> AttributeTable:
    """Throttles of every kernel; weight, model and targets of Anolis."""
    table = {f"blkio.throttle.{name}_device": Attribute(_reader(word), _writer(word)) for word, name in _LIMITS.items()}
    table["blkio.throttle.io_service_bytes"] = Attribute(
        lambda group: _served(group, lambda disk, amount: f"{disk} Read {amount}\n")
    )
    if not extended:
        return table
    weight = Attribute(lambda group: f"default 100\n{_lines(group, 'weight')}", _set_weight, root=False)
    return {**table, "blkio.cost.weight": weight, **_root_files("blkio.")}


def read_limit(group: Group) -> int | None:
    """Bytes a second that may be read from the first disk; None without a limit."""
    limit = group.disks.get(READ, {}).get(DISKS["vda"])
    return int(limit) if limit else None


def _served(group: Group, line: Callable[[str, int], str]) -> str:
    amount = int(group.read_bytes)
    return line(DISKS["vda"], amount) if amount else ""


def _lines(group: Group, word: str) -> str:
    return "".join(f"{device} {value}\n" for device, value in group.disks.get(word, {}).items())


def _reader(word: str) -> Callable[[Group], str]:
    return lambda group: _lines(group, word)


def _writer(word: str) -> Callable[[Group, bytes], None]:
    return lambda group, data: _keep(group, word, *_split(data), unlimited="0")


def _split(data: bytes) -> tuple[str, str]:
    """`MAJOR:MINOR VALUE`: ENODEV for a partition or no disk at all."""
    device, _, value = data.decode("latin-1").strip().partition(" ")
    if device not in DISKS.values():
        raise refusal(errno.ENODEV)
    return device, value.strip()


def _keep(group: Group, word: str, device: str, value: str, *, unlimited: str) -> None:
    by_device = group.disks.setdefault(word, {})
    if value == unlimited:
        by_device.pop(device, None)
        return
    number = kernel_text.integer(value.encode(), low=0, high=2**64 - 1)
    if number == 0:
        raise refusal(errno.ERANGE)
    by_device[device] = str(number)


def _shown_limits(group: Group) -> str:
    text = ""
    for device in DISKS.values():
        limits = {word: group.disks.get(word, {}).get(device, "max") for word in _LIMITS}
        if set(limits.values()) != {"max"}:
            text += f"{device} {' '.join(f'{word}={value}' for word, value in limits.items())}\n"
    return text


def _set_limits(group: Group, data: bytes) -> None:
    device, pairs = _split(data)
    for pair in pairs.split():
        word, _, value = pair.partition("=")
        if word not in _LIMITS:
            raise refusal(errno.EINVAL)
        _keep(group, word, device, value, unlimited="max")


def _set_weight(group: Group, data: bytes) -> None:
    device, value = _split(data)
    *_, root = group.lineage()
    if not any(device in root.disks.get(word, {}) for word in ("qos", "model")):
        # The policy begins with the first line about its disk (`blkg_conf_prep`).
        raise refusal(errno.EOPNOTSUPP)
    if value != "default":
        kernel_text.integer(value.encode(), low=1, high=10_000)
    _keep(group, "weight", device, value, unlimited="default")


def _root_files(prefix: str) -> AttributeTable:
    return {
        f"{prefix}cost.qos": Attribute(_reader("qos"), _cost_writer("qos", _QOS)),
        f"{prefix}cost.model": Attribute(_reader("model"), _cost_writer("model", _MODEL)),
    }


def _cost_writer(word: str, first: Mapping[str, str]) -> Callable[[Group, bytes], None]:
    def write(group: Group, data: bytes) -> None:
        if group.parent is not None:
            raise refusal(errno.EINVAL)
        device, text = _split(data)
        request = _pairs(text)
        if not request.keys() <= {*first, "min", "max"}:
            raise refusal(errno.EINVAL)
        old = {**first, **_pairs(group.disks.get(word, {}).get(device, ""))}
        # Numbers are the user's; `ctrl=auto` gives the kernel's own back.
        numbers = request.keys() - {"enable", "ctrl", "model"}
        base = {**first, "enable": old["enable"]} if request.get("ctrl") == "auto" and "enable" in first else old
        merged = {**base, **({"ctrl": "user"} if numbers else {}), **request}
        group.disks.setdefault(word, {})[device] = " ".join(f"{name}={value}" for name, value in merged.items())

    return write


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split())
