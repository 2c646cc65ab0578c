"""The capabilities in the manifests are the ones a real kernel asks for."""

from __future__ import annotations

import kernelrig
import pytest
import slices

pytestmark = kernelrig.marks(570)
DAC_OVERRIDE, SYS_PTRACE, SYS_RESOURCE = 1, 19, 24
ALWAYS = {"cpus", "quota", "idle", "memory", "schemata", "threads", "oom of root"}
WITH = {
    DAC_OVERRIDE: {"group", "oom of others"},
    SYS_RESOURCE: {"oom below", "trigger"},
    SYS_PTRACE: {"cookie of others"},
}


BOOTS = {"none": [], "those-of-core-scheduling": [DAC_OVERRIDE, SYS_RESOURCE, SYS_PTRACE]}


@pytest.mark.parametrize("keep", slices.named(BOOTS))
def test_what_root_may_do_with_these_capabilities(keep):
    environment = {"KVER": "6.12", "RESCTRL": "rw"}
    (found,), _ = kernelrig.told("intel", "tests/vm/guest_capabilities.py", keep, environment)
    allowed = {name for name, answer in found.items() if answer == "ok"}
    assert allowed == ALWAYS.union(*(WITH[number] for number in keep)), found
