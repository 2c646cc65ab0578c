"""What ended, or never began, leaves the undo journal."""

from __future__ import annotations

import errno
from collections.abc import Callable

from emulated import Emulated
from hooked_files import HookedFiles, refusing

Make = Callable[..., Emulated]
RESCTRL = "/sys/fs/resctrl"


def test_pods_that_come_and_go_do_not_make_the_journal_grow(emulate: Make) -> None:
    node = emulate("small")
    sizes = []
    with node.journal() as journal:
        agent = node.agent(journal)
        node.ticks(agent, 2)
        for number in range(6):
            node.pod(f"web-{number}", "LS", "100m")
            node.ticks(agent, 2)
            assert any(f"uid-web-{number}/" in str(place) for place in journal.places)
            sizes.append(len(journal.places))
            node.remove(f"web-{number}")
            node.ticks(agent, 1)
    assert len(set(sizes)) == 1


def test_a_group_that_is_only_unreadable_stays_in_the_journal(emulate: Make) -> None:
    node = emulate("small")
    with node.journal() as journal:
        node.ticks(node.agent(journal), 2)
        web = {place for place in journal.places if "uid-web/" in str(place)}
        assert web
        blind = node.agent(journal, files=HookedFiles(node.sandbox.files, look=refusing("uid-web/", errno.EIO)))
        node.pod("late", "LS", "100m")
        node.ticks(blind, 2)
        assert any("uid-late/" in str(place) for place in journal.places)
        assert web <= journal.places


def test_a_resctrl_group_we_could_not_make_is_not_removed_when_somebody_else_makes_it(emulate: Make) -> None:
    node = emulate("intel-2s-ht")
    files = node.sandbox.files
    node.host()
    with node.at_work() as agent:
        node.sandbox.fail(f"{RESCTRL}/BE", errno.ENOSPC)
        ticks = node.ticks(agent, 1)
        refused = {str(step.place): step.error for step in ticks[-1].applied if not step.ok}
        assert "ENOSPC" in refused.pop("resctrl/BE")
        assert set(refused.values()) == {"its group was not made"}
        files.mkdir(f"{RESCTRL}/BE")
        node.ticks(agent, 2)
        agent.put_back()
    assert "BE/" in files.list(RESCTRL)
