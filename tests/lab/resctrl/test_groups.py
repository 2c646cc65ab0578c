"""Mounting, monitor groups, RMIDs in limbo, renames, threads that are born, CPUs that leave."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from resctrl_vfs import ResctrlVFS

from koordlite.lab.machine import shapes
from koordlite.lab.machine.processes import Processes
from koordlite.lab.machine.rdt import RDT, Cache, Monitoring
from koordlite.lab.machine.tree import Tree
from koordlite.lab.resctrl.filesystem import POINT, EmulatedResctrl
from koordlite.lab.resctrl.state import Caller
from koordlite.model.cpuset import CPUSet

Attempt = Callable[[Tree, str, str], str]

STATUS = f"{POINT}/info/last_cmd_status"


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


def test_one_mount_at_a_time_and_none_of_one_in_use(old: Node) -> None:
    assert old.answer(old.resctrl.mount) == "EBUSY"
    old.resctrl.users = 1
    assert old.answer(old.resctrl.umount) == "EBUSY"
    old.resctrl.users = 0
    assert old.answer(old.resctrl.umount) == "ok"
    assert old.answer(old.resctrl.umount) == "EINVAL"
    assert old.answer(old.resctrl.remount) == "EINVAL"
    assert old.make("g") == ["ENOENT"]
    assert list(old.files.list(POINT)) == []


def test_remounting_changes_nothing_but_the_right_to_write(old: Node, attempt: Attempt) -> None:
    old.resctrl.remount("cdp")
    assert old.resctrl.options == "rw,relatime"
    old.resctrl.remount("ro")
    assert old.resctrl.options == "ro,relatime"
    assert old.make("g", "mon_groups/m") == ["EROFS", "EROFS"]
    assert attempt(old.files, f"{POINT}/schemata", "L3:0=1\n") == "EROFS"


def test_unmounting_brings_everything_back_but_the_threshold(old: Node) -> None:
    old.make("g")
    old.files.write(f"{POINT}/g/tasks", f"{old.first}\n".encode())
    old.files.write(f"{POINT}/schemata", b"L3:0=1\n")
    old.files.write(f"{POINT}/info/L3_MON/max_threshold_occupancy", b"65536\n")
    kept = old.files.entry(f"{POINT}/g/schemata")
    old.resctrl.umount()
    assert old.resctrl.proc_text(old.first) == "res:\nmon:\n"
    old.resctrl.mount()
    assert old.resctrl.proc_text(old.first) == "res:/\nmon:\n"
    assert "L3:0=fff" in old.text("schemata")
    assert old.text("info/L3_MON/max_threshold_occupancy") == "65536\n"
    with pytest.raises(OSError, match="No such device"):
        kept.read()  # type: ignore[union-attr]


def test_a_monitor_group_takes_threads_of_its_control_group_only(old: Node, attempt: Attempt) -> None:
    assert old.make("g", "g/mon_groups/m", "mon_groups/r") == ["ok"] * 3
    assert attempt(old.files, f"{POINT}/g/mon_groups/m/tasks", f"{old.first}\n") == "EINVAL"
    assert old.text("info/last_cmd_status") == "Can't move task to different control group\n"
    old.files.write(f"{POINT}/g/tasks", f"{old.first}\n".encode())
    old.files.write(f"{POINT}/g/mon_groups/m/tasks", f"{old.first}\n".encode())
    assert old.text("g/tasks") == old.text("g/mon_groups/m/tasks") == f"{old.first}\n"
    assert old.resctrl.proc_text(old.first) == "res:g\nmon:m\n"
    old.files.rmdir(f"{POINT}/g/mon_groups/m")
    assert old.resctrl.proc_text(old.first) == "res:g\nmon:\n"


@pytest.mark.parametrize(
    "path", ["g/x", "info/x", "info/L3/x", "mon_data/x", "g/mon_groups/mon_groups", "g/mon_groups/m/x"]
)
def test_where_no_group_can_be_made(old: Node, path: str) -> None:
    old.make("g", "g/mon_groups/m")
    assert old.make(path) == ["EPERM"]


def test_monitoring_hardware_alone_has_no_control_groups() -> None:
    node = Node(RDT(l3=None, mb=None))
    assert node.make("g", "mon_groups/m") == ["EPERM", "ok"]
    assert node.text("tasks") == ""
    node.files.write(f"{POINT}/mon_groups/m/tasks", f"{node.first}\n".encode())
    assert node.text("mon_groups/m/tasks") == f"{node.first}\n"


def test_an_rmid_stays_in_limbo_until_the_worker_has_checked(old: Node) -> None:
    names = [f"mon_groups/m{number}" for number in range(31)]
    assert set(old.make(*names)) == {"ok"}
    assert old.make("mon_groups/more") == ["ENOSPC"]
    old.files.rmdir(f"{POINT}/mon_groups/m7")
    assert old.make("mon_groups/more", "g") == ["EBUSY", "EBUSY"]
    old.now += 1.1
    assert old.make("g") == ["ok"]
    assert old.text("info/last_cmd_status") == "Out of RMIDs\n" * 3


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


def test_a_monitor_group_takes_its_threads_along(new: Node) -> None:
    new.make("g", "mon_groups/m")
    new.files.write(f"{POINT}/mon_groups/m/tasks", f"{new.first}\n".encode())
    new.files.rename(f"{POINT}/mon_groups/m", f"{POINT}/g/mon_groups/n")
    assert new.resctrl.proc_text(new.first) == "res:g\nmon:n\n"
    assert new.text("g/tasks") == f"{new.first}\n"


def test_6_1_renames_nothing(old: Node) -> None:
    old.make("mon_groups/m")
    assert old.answer(lambda: old.files.rename(f"{POINT}/mon_groups/m", f"{POINT}/mon_groups/n")) == "EPERM"


def test_a_list_of_threads_is_carried_out_up_to_the_first_mistake(new: Node, attempt: Attempt) -> None:
    new.make("g")
    wanted = f"{new.first}, {new.second},77,{new.third}\n"
    assert attempt(new.files, f"{POINT}/g/tasks", wanted) == "ESRCH"
    assert new.text("info/last_cmd_status") == "No task 77\nError while processing task 77\n"
    assert new.text("g/tasks") == f"{new.first}\n{new.second}\n"
    assert attempt(new.files, f"{POINT}/g/tasks", "\n") == "ok"


def test_threads_and_children_start_where_their_maker_is(old: Node) -> None:
    old.make("g", "g/mon_groups/m")
    old.files.write(f"{POINT}/g/tasks", f"{old.second}\n".encode())
    old.files.write(f"{POINT}/g/mon_groups/m/tasks", f"{old.second}\n".encode())
    thread = old.processes.clone(old.second)
    child = old.processes.fork(old.second, now=1).pid
    other = old.processes.clone(old.first)
    assert old.text("g/mon_groups/m/tasks").split() == [str(tid) for tid in (old.second, thread, child)]
    assert old.resctrl.group_of(other) == ""


def test_who_writes_counts(old: Node, attempt: Attempt) -> None:
    old.make("g")
    old.resctrl.caller = Caller(uid=65534)
    assert attempt(old.files, f"{POINT}/g/tasks", f"{old.first}\n") == "EPERM"
    with pytest.raises(PermissionError):
        ResctrlVFS(old.files, old.resctrl).open(f"{POINT}/g/tasks", write=True)
    old.resctrl.caller = Caller(tid=old.third, pids={1: old.third})
    assert attempt(old.files, f"{POINT}/g/tasks", "1\n") == "ok"
    assert attempt(old.files, f"{POINT}/g/tasks", f"{old.first}\n") == "ESRCH"
    assert old.text("g/tasks") == "1\n"
    assert attempt(old.files, f"{POINT}/tasks", "0\n") == "ok"
    assert old.text("g/tasks") == ""


def test_a_new_set_of_cpus_takes_those_of_the_monitor_groups(old: Node) -> None:
    old.make("g", "g/mon_groups/m")
    old.files.write(f"{POINT}/g/cpus_list", b"0-3\n")
    old.files.write(f"{POINT}/g/mon_groups/m/cpus_list", b"1\n")
    assert old.text("g/cpus_list") == "0-3\n"
    old.files.write(f"{POINT}/g/cpus_list", b"1-2\n")
    assert old.text("g/mon_groups/m/cpus_list") == "\n"


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


def test_numbers_of_the_hardware_are_shown_with_debug(new: Node) -> None:
    new.resctrl.umount()
    new.now += 2
    new.resctrl.mount("debug")
    new.make("g", "g/mon_groups/m")
    assert [new.text(path) for path in ("ctrl_hw_id", "g/ctrl_hw_id", "mon_hw_id")] == ["0\n", "1\n", "0\n"]
    assert "ctrl_hw_id" not in new.files.list(f"{POINT}/g/mon_groups/m")


@pytest.mark.parametrize(
    ("text", "answer", "shown"),
    [
        pytest.param("100000\n", "ok", "65536", id="rounded down to what the hardware counts in"),
        pytest.param("0x20000", "ok", "131072", id="hexadecimal, without a newline"),
        pytest.param("-1\n", "EINVAL", "589824", id="negative"),
        pytest.param("4294967296\n", "ERANGE", "589824", id="more than 32 bits"),
        pytest.param("18874369\n", "EINVAL", "589824", id="more than the cache holds"),
    ],
)
def test_threshold_of_occupancy(old: Node, attempt: Attempt, text: str, answer: str, shown: str) -> None:
    assert attempt(old.files, f"{POINT}/info/L3_MON/max_threshold_occupancy", text) == answer
    assert old.text("info/L3_MON/max_threshold_occupancy") == f"{shown}\n"


def test_the_status_holds_what_fits(old: Node, attempt: Attempt) -> None:
    old.make("g")
    for _ in range(40):
        attempt(old.files, f"{POINT}/g/cpus_list", "999\n")
    assert old.text("info/last_cmd_status") == "Bad CPU list/mask\n" * 28
    attempt(old.files, f"{POINT}/g/schemata", f"{'X' * 600}:0=1\n")
    shown = old.text("info/last_cmd_status")
    assert len(shown) == 511, "a message with a value in it is cut"
    attempt(old.files, f"{POINT}/g/cpus_list", "999\n")
    assert old.text("info/last_cmd_status") == shown, "and none is added to it"


def test_what_the_file_layer_refuses(old: Node) -> None:
    vfs = ResctrlVFS(old.files, old.resctrl)
    old.make("g")
    refused = {
        "EPERM": lambda: vfs.unlink(f"{POINT}/g/schemata"),
        "EISDIR": lambda: vfs.unlink(f"{POINT}/g"),
        "EACCES": lambda: vfs.create(f"{POINT}/g/new"),
        "ENOENT": lambda: vfs.create(f"{POINT}/none/new"),
        "EEXIST": lambda: vfs.link(f"{POINT}/g/tasks"),
        "EBUSY": lambda: old.files.rmdir(POINT),
        "ENOTDIR": lambda: old.files.rmdir(f"{POINT}/g/tasks"),
    }
    assert {old.answer(action): None for action in refused.values()} == dict.fromkeys(refused)
    assert old.answer(lambda: vfs.set_attribute(f"{POINT}/g", "user.x")) in ("ENOTSUP", "EOPNOTSUPP")
    assert old.answer(lambda: vfs.set_attribute(f"{POINT}/g", "trusted.x")) == "ok"
    assert vfs.attributes(f"{POINT}/g").links == 4
