"""Sequences of operations on resctrl, half sensible, half not: what a kernel and its emulation are asked alike.

An operation is a list: a verb, a path below the mount point, and for writes the text. Threads are written as symbols
(`$P0`), since every machine numbers them in its own way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

Operation = list[str]

MONITORS = "/mon_groups/"

GROUPS = ("a", "a", "b", "b", "c", "d e")
ODD_NAMES = ("info", "mon_groups", "mon_data", "schemata", ".h", "a\nb", "ü", "x" * 255)
MOUNTS = ("", "", "cdp", "cdpl2", "cdp,cdpl2", "mba_MBps", "cdp,mba_MBps", "debug", "debug,cdp", "cdp=1", "nonsense")
OWN_PARTS = {"a": "f", "b": "70", "": "f00", "c": "80"}
"""Masks with which groups do not overlap, so that they may become exclusive."""
ATTRIBUTES = ("a", "a/mode", "none", "info", "info/last_cmd_status")
RESOURCES = {"": ("L3", "L3", "MB", "SMBA", "L2"), "cdp": ("L3CODE", "L3DATA", "MB", "SMBA", "L2", "L2CODE", "L2DATA")}
ODD_RESOURCES = ("l3", "L3", "L3CODE", "L3_MON", "", "MB ", "\tL3", "MBA", "SMBA", "L2CODE")
ODD_IDS = ("", "+0", "00", " 0", "0 ", "-0", "0x0", "a", "9", "4294967296", "18446744073709551616", "1 1")
ODD_MASKS = (
    *("", "0", "00", "0x3", "0Xf", "+f", "-f", "g", "f f", " 3", "3 ", "3\t", "0b11", "00000000f", "f" * 17, "_f"),
)
ODD_AMOUNTS = (
    *("", "0", "010", "+50", " 50", "50 ", "50%", "0x32", "1.5", "-1", "101", "4294967295", "4294967296", "5_0"),
)
ENDS = ("", "\n\n", "\r\n", ";\n", ";;\n", "\0\n", "\nL3", "\n#\n", " \n", "\t\n", "\0tail\n", "é\n")
MODES = ("shareable\n", "exclusive\n")
ODD_MODES = (
    *("exclusive", "Exclusive\n", " exclusive\n", "exclusive \n", "pseudo-locked\n", "pseudo-locksetup\n", "\n", ""),
)
TASKS = ("$P0", "$P1\n", "$P2 ", "$P0", "$P1", "$P2\n")
ODD_TASKS = (
    *("", "\n", "0", "999999", "-1", "abc", "$P0,$P1", "$P0, $P2\n", "$P1,x,$P2", "1.5", "$P0\n$P1", "$P0,,$P1"),
    *("$P0,999999,$P1", "-0", "+$P0", "$P0\0x", "$P1,\n", ",$P1", "0x", "2147483648", "\t$P2\t"),
)
CPU_LISTS = ("0", "1-2", "3", "0-3", "", "4-7", "5", "\n", "0-7")
ODD_CPU_LISTS = (
    *("all", "0-7:1/2", "0, 2", "7-3", "a", "8", "1000", "0x1", "3-", "-3", "1,,2", "0-1,1-2", "N", "0-N", "none"),
)
CPU_MASKS = ("0", "1", "6", "f", "f0", "ff\n", "")
ODD_CPU_MASKS = ("0xf", "zz", "100", "00000001", "0,1", "1,0", "ffffffffff", "f,", ",f", " f", "1 1")
THRESHOLDS = (
    *("0x10000", "100000", "1", "0", "-1", "abc", "", "99999999999", "4294967296", "65536\n", "0200000", "999999999"),
)
EVENT_CHOICES = (
    *("0=15\n", "1=0x7f;0=48\n", "0=80\n", "9=1\n", "0=g\n", "0=1", "0=1;;1=2\n", "0=3;\n", "=1\n", " 0=4\n", "0= 4\n"),
)


def sequence(seed: int, count: int, *, amd: bool, cpus: int = 8) -> Iterator[Operation]:
    """Operations with a mount every now and then; the same for the same seed."""
    return _Author(seed, amd, cpus).write(count)


class _Author:
    """Knows roughly what was mounted, so that most of what it writes makes sense."""

    def __init__(self, seed: int, amd: bool, cpus: int) -> None:
        self._dice = random.Random(seed)
        self._amd, self._cpus, self._caches = amd, cpus, 4 if amd else 2
        self._offline: list[int] = []
        self._there: list[str] = []
        """Groups that were asked for; the kernel may have said no."""
        self._cdp = False

    def write(self, count: int) -> Iterator[Operation]:
        for number in range(count):
            if number % 60 == 0:
                yield from self._mount_again()
            yield self._one()
        yield from (["online", str(cpu)] for cpu in self._offline)
        yield ["umount", ""]

    def _mount_again(self) -> Iterator[Operation]:
        options = self._dice.choice(MOUNTS)
        self._cdp = "cdp" in options
        yield ["umount", ""]
        yield ["mount", options]
        yield ["mount", ""]
        self._there = ["a", "b", "a/mon_groups/m"]
        yield from (["mkdir", group] for group in self._there)

    def _one(self) -> Operation:
        makers = {
            self._schemata: 40,
            self._mode: 9,
            self._tasks: 12,
            self._make: 14,
            self._remove: 7,
            self._rename: 4,
            self._cpus_list: 6,
            self._cpus_mask: 3,
            self._information: 3,
            self._hotplug: 2,
            self._unlink: 1,
            self._count: 3,
        }
        (maker,) = self._dice.choices(list(makers), list(makers.values()))
        return maker()

    def _pick(self, usual: tuple[str, ...], odd: tuple[str, ...], odds: float = 0.2) -> str:
        return self._dice.choice(odd if self._dice.random() < odds else usual)

    def _control(self) -> str:
        controls = [each for each in self._there if MONITORS not in each]
        return self._pick(tuple(controls) or ("",), ("", "", "", "none"), 0.2)

    def _group(self) -> str:
        """A control group, or one that monitors."""
        monitors = [each for each in self._there if MONITORS in each]
        return self._dice.choice(monitors) if monitors and self._dice.random() < 0.4 else self._control()

    def _make(self) -> Operation:
        where = self._dice.random()
        if where > 0.9:
            return ["mkdir", f"{self._group()}/{self._dice.choice(('mon_data/x', 'sub', 'info', 'mon_groups'))}"]
        if where < 0.5:
            path = self._pick(GROUPS, ODD_NAMES, 0.15)
        else:
            path = f"{self._control()}{MONITORS}{self._pick(('m', 'n'), ODD_NAMES, 0.1)}"
        if path not in self._there and "\n" not in path:
            self._there.append(path)
        return ["mkdir", path]

    def _remove(self) -> Operation:
        odd = ("info", "a/mon_data", "a/mon_groups", "a/schemata", "none", "info/L3", "mon_data/mon_L3_00")
        path = self._dice.choice(odd) if self._dice.random() < 0.2 else self._group()
        self._there = [each for each in self._there if each != path and not each.startswith(f"{path}/")]
        return ["rmdir", path]

    def _rename(self) -> Operation:
        """Mostly a monitoring group to another name or control group."""
        sources = [each for each in self._there if MONITORS in each] or ["a"]
        odd = (
            "a/schemata",
            "info",
            "a",
            "b",
            "a/mon_groups",
            "none/mon_groups/m",
            "a/mon_groups/mon_groups",
            "mon_data",
        )
        target = f"{self._control()}{MONITORS}{self._dice.choice('mnop')}"
        source = self._pick(tuple(sources), odd, 0.25)
        target = self._pick((target,), odd, 0.25)
        if source in sources and MONITORS in target and target not in self._there:
            self._there.append(target)
        return ["rename", source, target]

    def _mode(self) -> Operation:
        return ["write", f"{self._control()}/mode", self._pick(MODES, ODD_MODES)]

    def _tasks(self) -> Operation:
        return ["write", f"{self._group()}/tasks", self._pick(TASKS, ODD_TASKS, 0.4)]

    def _cpus_list(self) -> Operation:
        return ["write", f"{self._group()}/cpus_list", self._pick(CPU_LISTS, ODD_CPU_LISTS, 0.3)]

    def _cpus_mask(self) -> Operation:
        return ["write", f"{self._group()}/cpus", self._pick(CPU_MASKS, ODD_CPU_MASKS, 0.3)]

    def _information(self) -> Operation:
        name, texts = self._dice.choice(
            (
                ("max_threshold_occupancy", THRESHOLDS),
                ("mbm_total_bytes_config", EVENT_CHOICES),
                ("mbm_local_bytes_config", EVENT_CHOICES),
                ("num_rmids", ("5",)),
            )
        )
        return ["write", f"info/L3_MON/{name}", self._dice.choice(texts)]

    def _hotplug(self) -> Operation:
        """The first CPU stays; the last ones share a cache, which goes with them."""
        if self._offline and self._dice.random() < 0.5:
            return ["online", str(self._offline.pop())]
        free = [cpu for cpu in range(self._cpus // 2, self._cpus) if cpu not in self._offline]
        if not free:
            return ["online", str(self._offline.pop())]
        self._offline.append(free[-1])
        return ["offline", str(free[-1])]

    def _schemata(self) -> Operation:
        control = self._control()
        if control in OWN_PARTS and self._dice.random() < 0.4:
            return ["write", f"{control}/schemata", self._own_part(OWN_PARTS[control])]
        lines = [self._line() for _ in range(self._dice.choice((1, 1, 1, 1, 2, 2, 3)))]
        end = self._pick(("\n",), ENDS, 0.12)
        return ["write", f"{control}/schemata", "\n".join(lines) + end]

    def _own_part(self, mask: str) -> str:
        names = ("L3CODE", "L3DATA") if self._cdp else ("L3",)
        pieces = ";".join(f"{cache}={mask}" for cache in range(self._caches))
        return "".join(f"{name}:{pieces}\n" for name in names)

    def _count(self) -> Operation:
        """What the hardware shows of the root group: its number is the same everywhere."""
        place = f"{self._dice.randrange(self._caches)} 0 {self._dice.randint(1, 3)}"
        return ["count", place, self._dice.choice(("0", "5", "100", "1000", "100000", "err", "unavail"))]

    def _unlink(self) -> Operation:
        return [self._dice.choice(("unlink", "create", "symlink")), self._dice.choice(ATTRIBUTES)]

    def _line(self) -> str:
        name = self._pick(RESOURCES["cdp" if self._cdp else ""], ODD_RESOURCES, 0.06)
        pieces = [self._domain(name) for _ in range(self._dice.choice((1, 1, 2, 2, 3)))]
        if self._dice.random() < 0.05:
            return f"{name}{self._dice.choice(('', ':', ': ', ':;', ':0'))}"
        return f"{name}:" + self._dice.choice((";",) * 12 + (";;", "; ", " ;", ",")).join(pieces)

    def _domain(self, name: str) -> str:
        cache = self._pick(tuple(map(str, range(self._caches))), ODD_IDS, 0.04)
        equals = self._pick(("=",), (" =", "= ", "==", ""), 0.03)
        return f"{cache}{equals}{self._amount() if name.strip() in ('MB', 'SMBA') else self._mask()}"

    def _mask(self) -> str:
        if self._dice.random() < 0.1:
            return self._dice.choice(ODD_MASKS)
        if self._dice.random() < 0.15:
            return f"{self._dice.randrange(1 << 13):x}"
        length, first = self._dice.randint(1, 6), self._dice.randint(0, 8)
        return f"{((1 << length) - 1) << first:x}"

    def _amount(self) -> str:
        if self._dice.random() < 0.12:
            return self._dice.choice(ODD_AMOUNTS)
        return str(self._dice.randint(0, 2100 if self._amd else 105))
