"""Reports of any producer: whatever they hold, they are read, or not used with a reason."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koordlite.model import keys
from koordlite.model.wire import objects
from koordlite.numa.nrt import placement
from koordlite.scheduler.judgement import nodes

amount = st.sampled_from(["0", "4", "1500m", "8Gi", "-1", "lots", "", "1e400"]) | st.text(max_size=4)
resource = st.fixed_dictionaries(
    {"name": st.sampled_from(["cpu", "memory", "x/y", ""]), "available": amount, "allocatable": amount}
)
cost = st.fixed_dictionaries(
    {"name": st.sampled_from(["node-0", "node-1", "x"]), "value": st.integers(-5, 300) | st.text(max_size=2)}
)
zone = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["node-0", "node-1", "node-63", "node-64", "numa0", ""]),
        "type": st.sampled_from(["Node", "Socket", ""]),
        "resources": st.none() | st.lists(resource, max_size=3),
        "costs": st.none() | st.lists(cost, max_size=2),
    }
)
attribute = st.fixed_dictionaries(
    {
        "name": st.sampled_from(
            ["topologyManagerPolicy", "nodeTopologyPodsFingerprint", placement.METADATA_ATTRIBUTE, "x"]
        ),
        "value": st.sampled_from(["restricted", "npv0v001::ve=leb89::cc=1::nn=2::bn=0", "pfp0v001", ""])
        | st.text(max_size=6),
    }
)


@given(
    zones=st.none() | st.lists(zone, max_size=4),
    attributes=st.none() | st.lists(attribute, max_size=4),
    note=st.none() | st.text(max_size=20),
)
def test_every_report_can_be_read(zones: object, attributes: object, note: str | None) -> None:
    notes = {} if note is None else {keys.PLACEMENT: note}
    obj = {"metadata": {"name": "n", "annotations": notes}, "zones": zones, "attributes": attributes}
    result = nodes.Report(msgspec.convert(obj, objects.NRTObject, strict=False))
    assert result.available.keys() == result.totals.keys()
    assert all(0 <= node < 64 for node in result.available)
    if not result.problems:
        for node, amounts in result.available.items():
            assert all(0 <= free <= result.totals[node][name] for name, free in amounts.items())
    result.whereabouts([("ns", "p", "c")])
