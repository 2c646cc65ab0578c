"""The file tree answers like a kernel file system, and fails on demand."""

from __future__ import annotations

import errno

import pytest

from koordlite.lab import Sandbox
from koordlite.lab.machine.tree import File, Folder, Link, Tree, constant


@pytest.fixture
def tree() -> Tree:
    """One folder with a read-only file and a link to it."""
    made = Tree()
    made.place("/a/file", constant("text\n"))
    made.place("/b", Link("/a"))
    return made


@pytest.mark.parametrize(
    ("call", "path", "code"),
    [
        pytest.param("read", "/a/none", errno.ENOENT, id="reading what is not there"),
        pytest.param("read", "/a", errno.EISDIR, id="reading a folder"),
        pytest.param("read", "/a/file/x", errno.ENOTDIR, id="going through a file"),
        pytest.param("list", "/a/file", errno.ENOTDIR, id="listing a file"),
        pytest.param("list", "/none", errno.ENOENT, id="listing what is not there"),
        pytest.param("mkdir", "/a/new", errno.EPERM, id="making a folder where none can be made"),
        pytest.param("mkdir", "/a/file", errno.EEXIST, id="making what is there"),
        pytest.param("mkdir", "/none/new", errno.ENOENT, id="making a folder nowhere"),
        pytest.param("rmdir", "/a/none", errno.ENOENT, id="removing what is not there"),
        pytest.param("rmdir", "/a/file", errno.ENOTDIR, id="removing a file as a folder"),
    ],
)
def test_refusals_name_the_path(tree: Tree, call: str, path: str, code: int) -> None:
    with pytest.raises(OSError) as raised:
        getattr(tree, call)(path)
    assert (raised.value.errno, raised.value.filename) == (code, path)


def test_a_read_only_file_cannot_be_written(tree: Tree) -> None:
    with pytest.raises(PermissionError):
        tree.write("/a/file", b"x")


def test_links_are_followed(tree: Tree) -> None:
    assert tree.read("/b/file") == b"text\n"


def test_folders_are_marked_in_a_list(tree: Tree) -> None:
    tree.place("/a/folder", Folder())
    assert tree.list("/a") == ["file", "folder/"]
    assert list(tree.paths("/a")) == ["/a/file"]


def test_a_write_reaches_its_function() -> None:
    written: list[bytes] = []
    tree = Tree()
    tree.place("/file", File(lambda: "", written.append))
    tree.write("/file", b"one write")
    assert written == [b"one write"]


@pytest.mark.parametrize("shape", ["intel-2s-ht", "amd-ccd", "arm", "small"])
def test_every_listed_file_of_a_machine_can_be_read(shape: str) -> None:
    sandbox = Sandbox(shape)
    for path in sandbox.files.paths():
        if path.endswith("/cgroup.kill"):  # The kernel's is written only.
            with pytest.raises(OSError, match="Invalid argument"):
                sandbox.files.read(path)
        else:
            assert isinstance(sandbox.files.read(path), bytes), path
