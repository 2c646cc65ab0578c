"""Pod fingerprints and numaplacement beyond the worked cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.numa.nrt import fingerprint, placement

NAMES = st.text(max_size=8)
CONTAINERS = st.tuples(NAMES, NAMES, NAMES)


@given(st.lists(st.tuples(NAMES, NAMES)), st.randoms(use_true_random=False))
def test_order_of_pods_does_not_matter(pods, random):
    shuffled = random.sample(pods, len(pods))
    assert fingerprint.sign(pods) == fingerprint.sign(shuffled)


@given(st.lists(st.tuples(NAMES, NAMES), unique=True, min_size=1))
def test_a_pod_more_is_a_mismatch(pods):
    assert fingerprint.sign(pods) != fingerprint.sign(pods[1:])


@given(
    st.integers(min_value=1, max_value=64).flatmap(
        lambda count: st.tuples(st.just(count), st.dictionaries(CONTAINERS, st.integers(0, count - 1), max_size=90))
    )
)
def test_what_is_written_reads_back(case):
    numa_nodes, nodes = case
    encoded = placement.encode(nodes, numa_nodes=numa_nodes)
    read = placement.parse_metadata(str(encoded.metadata))
    assert placement.decode(read, encoded.vectors, list(nodes)) == nodes


@given(st.integers(min_value=0, max_value=2**31 - 1))
def test_numbers_read_back(value):
    assert list(placement.numbers(placement.number(value))) == [value]


@given(
    st.text(), st.dictionaries(st.integers(-1, 3), st.text(max_size=5), max_size=3), st.lists(CONTAINERS, max_size=4)
)
def test_nonsense_is_refused_by_name(tail, vectors, containers):
    for text in (tail, f"npv0v001::{tail}", f"npv0v001::ve=leb89::cc={len(set(containers))}::nn=3::bn=0"):
        try:
            found = placement.decode(placement.parse_metadata(text), vectors, containers)
        except placement.PlacementError as error:
            assert error.flaw
        else:
            assert set(found) == set(containers)


@pytest.mark.parametrize(
    ("metadata", "vectors", "containers", "flaw"),
    [
        ("npv0v001::ve=leb89::cc=1::nn=2::bn=0::xx=5", {}, 1, "unknown-field"),
        ("npv0v001::ve=leb89::cc=::nn=2::bn=0", {}, 1, "missing-value"),
        ("npv0v001::ve=other::cc=1::nn=2::bn=0", {}, 1, "unsupported-encoding"),
        ("npv0v001::ve=leb89::cc=1::nn=2", {}, 1, "unknown-busiest"),
        ("npv0v001::ve=leb89::cc=1::nn=2::bn=2", {}, 1, "inconsistent-busiest"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {}, 1, "inconsistent-containers"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "!", 0: "#"}, 2, "inconsistent-vectors"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {0: "!"}, 2, "corrupted-vector"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "$"}, 2, "corrupted-vector"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "!!"}, 2, "duplicated"),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "~"}, 2, "corrupted-vector"),
    ],
)
def test_what_cannot_be_is_refused(metadata, vectors, containers, flaw):
    names = [("ns", f"pod-{number}", "c") for number in range(containers)]
    with pytest.raises(placement.PlacementError) as refused:
        placement.decode(placement.parse_metadata(metadata), vectors, names)
    assert refused.value.flaw == flaw


def test_a_node_the_machine_has_not_is_refused():
    with pytest.raises(placement.PlacementError, match="wrong-affinity: ns/pod/c is on NUMA node 2 of 2"):
        placement.encode({("ns", "pod", "c"): 2}, numa_nodes=2)


def test_an_empty_fingerprint_hides_the_old_annotation() -> None:
    notes = {fingerprint.ANNOTATION: "pfp0v001b92008c14168b3a6"}
    assert fingerprint.read({}, notes) == "pfp0v001b92008c14168b3a6"
    assert fingerprint.read({fingerprint.ATTRIBUTE: ""}, notes) == ""


def test_the_old_annotation_counts_all_pods() -> None:
    method = {fingerprint.METHOD_ATTRIBUTE: "with-exclusive-resources"}
    assert fingerprint.only_exclusive({fingerprint.ATTRIBUTE: "pfp0v001b92008c14168b3a6", **method})
    assert not fingerprint.only_exclusive(method)
