"""The section about pods: the busiest open, the rest to open, harmless whatever they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordlite.report.html import node_parts, page
from koordlite.report.pod_rows import PodRow


def test_the_busiest_are_open_and_the_others_behind_one_line(read_html: Callable[[str], Any]) -> None:
    rows = [PodRow(name=f"ns/p{i}", qos="LS", cpu=1000 * i) for i in range(node_parts.PODS_SHOWN + 5)]
    found = read_html(page.page("x", node_parts.pods_section(rows, link="explain/pod/")))
    assert "5 more pods" in found.text
    assert len([value for _, name, value in found.attributes if name == "href"]) == len(rows)
    assert "explain/pod/ns/p3" in {value for _, name, value in found.attributes if name == "href"}
    assert {"pod", "class", "CPU", "limit", "memory", "CPUs", "pressure", "decided last"} == {
        value for _, name, value in found.attributes if name == "data-label"
    }


def test_no_pod_is_said_and_strange_names_stay_text(read_html: Callable[[str], Any]) -> None:
    assert "no pod runs here" in read_html(page.page("x", node_parts.pods_section(()))).text
    evil = PodRow(name='"><script>x', qos="<b>", decided="<img src=x>")
    found = read_html(page.page("x", node_parts.pods_section((evil,), link="e/")))
    assert not {"script", "img", "b"} & set(found.tags)
