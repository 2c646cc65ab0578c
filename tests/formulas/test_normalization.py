"""What a CPU is worth, and by how much a node promises more than it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlite.formulas.allocatable import normalization
from koordlite.model.nrt import CPUBasicInfo
from koordlite.model.slo.settings import CPUNormalization, RatioModel, ResourceAmplification

MODEL = RatioModel(
    base_ratio=1.5,
    turbo_enabled_ratio=1.65,
    hyper_thread_enabled_ratio=1.0,
    hyper_thread_turbo_enabled_ratio=1.1,
)
CONFIG = CPUNormalization(enable=True, ratio_model={"Xeon": MODEL, "EPYC": RatioModel(base_ratio=2.0)})


def machine(model: str = "Xeon", hyper_threads: bool = True, turbo: bool = True) -> CPUBasicInfo:
    return CPUBasicInfo(model=model, hyper_threads=hyper_threads, turbo=turbo)


@pytest.mark.parametrize("info", [machine("Pentium"), machine("EPYC")], ids=["unknown model", "ratio not given"])
def test_the_default_stands_in(info: CPUBasicInfo) -> None:
    config = CPUNormalization(enable=True, default_ratio=1.3, ratio_model=CONFIG.ratio_model)
    assert normalization.cpu_ratio(config, info) == 1.3
    with pytest.raises(ValueError, match="no ratio for CPU model"):
        normalization.cpu_ratio(CONFIG, info)


@pytest.mark.parametrize(("ratio", "fits"), [(0.99, False), (1.0, True), (5.0, True), (5.01, False)])
def test_a_ratio_out_of_range_is_refused(ratio: float, fits: bool) -> None:
    config = CPUNormalization(enable=True, default_ratio=ratio)
    if fits:
        assert normalization.cpu_ratio(config, machine()) == ratio
    else:
        with pytest.raises(ValueError, match="not within 1 to 5"):
            normalization.cpu_ratio(config, machine())


@pytest.mark.parametrize("label", ["yes", "", "tRUE"])
def test_a_label_that_is_neither_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="neither true nor false"):
        normalization.node_ratio(CONFIG, label=label, machine=machine())


def test_an_unknown_machine_is_refused_only_when_it_matters() -> None:
    assert normalization.node_ratio(CPUNormalization(), label=None, machine=None) == 1.0
    with pytest.raises(ValueError, match="not known"):
        normalization.node_ratio(CONFIG, label=None, machine=None)


@pytest.mark.parametrize(
    ("ratios", "worth", "text"),
    [
        pytest.param({}, None, "{}", id="nothing"),
        pytest.param({}, 1.22, '{"cpu":1.22}', id="what CPUs are worth alone"),
        pytest.param({}, 1.0, "{}", id="a worth of 1 is nothing to tell"),
        pytest.param({"memory": 2.1, "cpu": 1.1}, None, '{"cpu":1.10,"memory":2.10}', id="as configured, in order"),
        pytest.param({"cpu": 1.5}, 1.2, '{"cpu":1.80}', id="both together"),
        pytest.param({"cpu": 0.8}, 1.5, '{"cpu":1.20}', id="below 1 where the worth makes up for it"),
        pytest.param({"cpu": 0}, 1.5, '{"cpu":1.50}', id="0 is not given"),
        pytest.param({"cpu": 1.0, "memory": 1.0}, None, '{"cpu":1.00,"memory":1.00}', id="1 as configured"),
    ],
)
def test_amplification(ratios: dict[str, float], worth: float | None, text: str) -> None:
    config = ResourceAmplification(enable=True, resource_amplification_ratio=ratios)
    assert normalization.encode_ratios(normalization.amplification(config, cpu_normalization=worth)) == text


@pytest.mark.parametrize(("ratios", "worth"), [({"cpu": 0.5}, 1.5), ({"storage": 0.5}, 1.5), ({"cpu": 0.9}, None)])
def test_less_than_there_is_is_refused(ratios: dict[str, float], worth: float | None) -> None:
    config = ResourceAmplification(enable=True, resource_amplification_ratio=ratios)
    with pytest.raises(ValueError, match="below 1"):
        normalization.amplification(config, cpu_normalization=worth)


def test_names_are_written_as_json() -> None:
    assert normalization.encode_ratios({'a"b': 1.5}) == '{"a\\"b":1.50}'


@pytest.mark.parametrize(
    ("held", "wanted", "write"),
    [
        (None, None, False),
        (None, 1.0, True),
        (1.0, None, True),
        (1.2, 1.2, False),
        (1.2, 1.205, False),
        (1.2, 1.21, False),
        (1.21, 1.2, False),
        (1.2, 1.22, True),
        (1.2, 1.2149, False),
        (1.21, 1.1951, False),
        (1.2, 1.2151, True),
    ],
)
def test_what_is_worth_a_write(held: float | None, wanted: float | None, write: bool) -> None:
    assert normalization.differs(held, wanted) is write


@given(ratio=st.floats(1, 5))
def test_what_was_printed_is_not_written_again(ratio: float) -> None:
    assert not normalization.differs(float(normalization.encode_ratio(ratio)), ratio)
