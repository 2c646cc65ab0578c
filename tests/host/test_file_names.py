"""The names that reports know files by are those that the host writes."""

from __future__ import annotations

import pytest

from koordlite.host.cgroups.versions import WRITABLE, Version
from koordlite.model import file_names


@pytest.mark.parametrize("number", [1, 2])
def test_every_field_that_is_written_has_its_file_name(number: int) -> None:
    files = {field: name for field, (_, name) in Version(number).files.items() if field in WRITABLE}
    assert files
    assert {field: name for field, name in files.items() if name not in file_names.CGROUP[field]} == {}


def test_no_name_is_known_that_neither_version_has() -> None:
    known = {name for names in file_names.CGROUP.values() for name in names}
    written = {name for number in (1, 2) for field, (_, name) in Version(number).files.items() if field in WRITABLE}
    assert known == written
