"""Mounting, monitor groups, RMIDs in limbo, renames, threads that are born, CPUs that leave."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from koordlite.lab.machine import shapes
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, Cache, Monitoring
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl
from koordlite.model.cpuset import CPUSet

Attempt = Callable[[Tree, str, str], str]


class Node:
    """A machine with two caches and a process of three threads, and a clock to turn."""

    def __init__(self, rdt: RDT) -> None:
        self.now = 0.0
        self.processes = Processes(500)
        self.first, self.second, self.third = self.processes.spawn("p", threads=3, now=0).tids
        self.resctrl = EmulatedResctrl(shapes.machine("intel-2s-ht"), rdt, self.processes, lambda: self.now)
        self.files = Tree()
        self.files.place(POINT, self.resctrl.folder)

    def answer(self, action: Callable[[], object]) -> str:
        """`ok` or the name of the errno."""
        try:
            action()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "ok"

    def make(self, *groups: str) -> list[str]:
        """mkdir of each, as `answer`s."""
        return [self.answer(lambda group=group: self.files.mkdir(f"{POINT}/{group}")) for group in groups]  # type: ignore[misc]

    def text(self, path: str) -> str:
        """A file below the mount point."""
        return self.files.read(f"{POINT}/{path}").decode()


@pytest.fixture
def old() -> Node:
    """Linux 6.1."""
    return Node(RDT())


@pytest.fixture
def new() -> Node:
    """Linux 6.12."""
    return Node(RDT(kernel=(6, 12)))


@pytest.mark.parametrize(
    ("kernel", "options", "answer"),
    [
        pytest.param((6, 1), "cdp", "ok", id="code and data"),
        pytest.param((6, 1), "cdp,mba_MBps", "ok", id="two of them"),
        pytest.param((6, 1), "cdpl2", "EINVAL", id="no L2 to cut"),
        pytest.param((6, 1), "debug", "EINVAL", id="debug is not known to 6.1"),
        pytest.param((6, 7), "debug", "ok", id="but to 6.7"),
        pytest.param((6, 1), "cdp=1", "EINVAL", id="a flag with a value"),
        pytest.param((6, 1), "nonsense", "EINVAL", id="a word"),
    ],
)
def test_mount_options(kernel: tuple[int, int], options: str, answer: str) -> None:
    node = Node(RDT(kernel=kernel))
    node.resctrl.umount()
    assert node.answer(lambda: node.resctrl.mount(options)) == answer
    assert node.resctrl.mounted == (answer == "ok")


def test_remounting_changes_nothing_but_the_right_to_write(old: Node, attempt: Attempt) -> None:
    old.resctrl.remount("cdp")
    assert old.resctrl.options == "rw,relatime"
    old.resctrl.remount("ro")
    assert old.resctrl.options == "ro,relatime"
    assert old.make("g", "mon_groups/m") == ["EROFS", "EROFS"]
    assert attempt(old.files, f"{POINT}/schemata", "L3:0=1\n") == "EROFS"


def test_monitoring_hardware_alone_has_no_control_groups() -> None:
    node = Node(RDT(l3=None, mb=None))
    assert node.make("g", "mon_groups/m") == ["EPERM", "ok"]
    assert node.text("tasks") == ""
    node.files.write(f"{POINT}/mon_groups/m/tasks", f"{node.first}\n".encode())
    assert node.text("mon_groups/m/tasks") == f"{node.first}\n"


def test_lines_in_a_cache_keep_its_rmid_in_limbo() -> None:
    node = Node(RDT(monitoring=Monitoring(rmids=2)))
    counters = node.resctrl.counters
    assert counters is not None
    assert node.make("g") == ["ok"]
    counters.set((1, 1, "llc_occupancy"), 200)
    node.files.rmdir(f"{POINT}/g")
    node.files.write(f"{POINT}/info/L3_MON/max_threshold_occupancy", b"65536\n")
    node.now += 60
    assert node.make("g") == ["EBUSY"]
    counters.set((1, 1, "llc_occupancy"), 0)
    node.now += 1.1
    assert node.make("g") == ["ok"]


@pytest.mark.parametrize(
    ("kernel", "caches", "answer"),
    [
        pytest.param((6, 1), 1, "ok", id="6.1 checks its own cache at once"),
        pytest.param((6, 9), 1, "EBUSY", id="6.9 waits for the worker in any case"),
        pytest.param((6, 1), 2, "EBUSY", id="other caches have to wait for it"),
    ],
)
def test_limbo_by_kernel_and_caches(kernel: tuple[int, int], caches: int, answer: str) -> None:
    rdt = RDT(kernel=kernel, monitoring=Monitoring(rmids=2))
    resctrl = EmulatedResctrl(shapes.machine("intel-1s" if caches == 1 else "intel-2s-ht"), rdt, Processes(1))
    tree = Tree()
    tree.place(POINT, resctrl.folder)
    tree.mkdir(f"{POINT}/g")
    tree.rmdir(f"{POINT}/g")
    try:
        tree.mkdir(f"{POINT}/g")
        assert answer == "ok"
    except OSError as error:
        assert errno.errorcode[error.errno or 0] == answer


def test_which_number_runs_out_first_depends_on_the_kernel() -> None:
    few = Cache(closids=2)
    for kernel, message in (((6, 1), "Out of RMIDs\n"), ((6, 12), "Out of CLOSIDs\n")):
        node = Node(RDT(kernel=kernel, l3=few, monitoring=Monitoring(rmids=2)))
        assert node.make("g", "h") == ["ok", "ENOSPC"]
        assert node.text("info/last_cmd_status") == message


@pytest.mark.parametrize(
    ("source", "target", "answer", "status"),
    [
        pytest.param("mon_groups/m", "mon_groups/n", "ok", "ok\n", id="another name"),
        pytest.param("mon_groups/m", "g/mon_groups/m", "ok", "ok\n", id="another control group"),
        pytest.param("mon_groups/m", "mon_groups/m", "ok", "ok\n", id="the same name"),
        pytest.param("mon_groups/m", "g/mon_groups/taken", "EEXIST", "ok\n", id="a name that is taken"),
        pytest.param("g", "h", "EPERM", "Source must be a MON group\n", id="a control group"),
        pytest.param("mon_groups/m", "h", "EPERM", "Destination must be a mon_groups subdirectory\n", id="to the root"),
        pytest.param(
            "mon_groups/c", "g/mon_groups/c", "EPERM", "Cannot move a MON group that monitors CPUs\n", id="with CPUs"
        ),
        pytest.param("info", "x", "ENOENT", "ok\n", id="info"),
        pytest.param("g/schemata", "g/x", "EPERM", "Source and destination must be directories", id="a file"),
        pytest.param("nothing", "x", "ENOENT", "ok\n", id="what is not there"),
        pytest.param("g", "g/mon_groups/n", "EINVAL", "ok\n", id="into itself"),
        pytest.param("g/mon_groups/taken", "g", "ENOTEMPTY", "ok\n", id="over what it is in"),
        pytest.param("g/schemata", "mon_groups/m", "EISDIR", "ok\n", id="a file over a folder"),
        pytest.param("mon_groups/m", "g/schemata", "ENOTDIR", "ok\n", id="a folder over a file"),
        pytest.param("", "info", "EXDEV", "ok\n", id="the whole file system"),
        pytest.param("nothing", "", "EXDEV", "ok\n", id="over the whole file system"),
    ],
)
def test_renames(new: Node, source: str, target: str, answer: str, status: str) -> None:
    new.make("g", "mon_groups/m", "mon_groups/c", "g/mon_groups/taken")
    new.files.write(f"{POINT}/mon_groups/c/cpus_list", b"1\n")
    new.files.write(f"{POINT}/mode", b"shareable\n")
    assert new.answer(lambda: new.files.rename(f"{POINT}/{source}", f"{POINT}/{target}")) == answer
    assert new.text("info/last_cmd_status") == status


def test_threads_and_children_start_where_their_maker_is(old: Node) -> None:
    old.make("g", "g/mon_groups/m")
    old.files.write(f"{POINT}/g/tasks", f"{old.second}\n".encode())
    old.files.write(f"{POINT}/g/mon_groups/m/tasks", f"{old.second}\n".encode())
    thread = old.processes.clone(old.second)
    child = old.processes.fork(old.second, now=1).pid
    other = old.processes.clone(old.first)
    assert old.text("g/mon_groups/m/tasks").split() == [str(tid) for tid in (old.second, thread, child)]
    assert old.resctrl.group_of(other) == ""


def test_a_cache_that_comes_back_is_open_to_all_groups(old: Node, attempt: Attempt) -> None:
    old.make("g")
    old.files.write(f"{POINT}/g/schemata", b"L3:0=3;1=3\nMB:0=50;1=50\n")
    old.files.write(f"{POINT}/g/cpus_list", b"8\n")
    away = [cpu.id for cpu in shapes.machine("intel-2s-ht").cpus if cpu.l3 == 1]
    for cpu in away:
        old.resctrl.offline(cpu)
    assert old.text("g/schemata") == "    MB:0= 50\n    L3:0=003\n"
    assert attempt(old.files, f"{POINT}/g/schemata", "L3:1=3\n") == "EINVAL"
    assert attempt(old.files, f"{POINT}/g/cpus_list", "8\n") == "EINVAL"
    assert list(old.files.list(f"{POINT}/mon_data")) == ["mon_L3_00/"]
    for cpu in away:
        old.resctrl.online(cpu)
    assert old.text("g/schemata") == "    MB:0= 50;1=100\n    L3:0=003;1=fff\n"
    assert old.text("g/cpus_list") == "\n"
    assert CPUSet(away) <= CPUSet.parse(old.text("cpus_list").strip())
