"""Which pods the webhook refuses."""

from __future__ import annotations

from typing import Any

import pytest

from koordlite.formulas.admission import admission
from koordlite.model import keys
from koordlite.model.pod.qos import QoSClass
from koordlite.model.pod.values import Pod
from koordlite.model.quantity import Quantity

QOS = f"labels.{keys.QOS_CLASS}"
REQUESTS = "pod.spec.containers[*].resources.requests"
FORBIDDEN = "Pod: Forbidden"


def pod(qos: str = "", priority: int | None = None, label: str = "", **requests: str) -> Pod:
    amounts = {name.replace("batch_", "kubernetes.io/batch-"): Quantity.parse(text) for name, text in requests.items()}
    labels = {keys.PRIORITY: label} if label else {}
    raw = QoSClass(qos)
    return Pod(namespace="a", name="b", uid="u", raw_qos=raw, priority=priority, requests=amounts, labels=labels)


def places(*given: Any, **how: Any) -> list[str]:
    return [refusal.place for refusal in admission.refusals(*given, **how)]


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        pytest.param(pod(), [], id="a pod without a wish"),
        pytest.param(pod("BE", 5000, batch_cpu="1"), [], id="batch work in its band"),
        pytest.param(pod("", 9500, batch_cpu="1"), [f"{QOS}: Required value"], id="batch-cpu needs BE"),
        pytest.param(pod("LS", 9500, batch_memory="1"), [f"{QOS}: Required value"], id="so does batch-memory"),
        pytest.param(pod("LS", 9500, batch_cpu="0"), [], id="nothing of it needs nothing"),
        pytest.param(pod("BE"), [FORBIDDEN], id="BE without a band"),
        pytest.param(pod("BE", 9999), [FORBIDDEN], id="BE as prod"),
        pytest.param(pod("BE", 7000), [], id="BE as mid"),
        pytest.param(pod("BE", 3000), [], id="BE as free"),
        pytest.param(pod("LSR", 9999, cpu="2"), [], id="LSR as prod"),
        pytest.param(pod("LSR", 7999, cpu="2"), [FORBIDDEN], id="LSR as mid"),
        pytest.param(pod("LSR", 5999, cpu="2"), [FORBIDDEN], id="LSR as batch"),
        pytest.param(pod("LSR", 3999, cpu="2"), [FORBIDDEN], id="LSR as free"),
        pytest.param(pod("LSR", 10_000, cpu="2"), [FORBIDDEN], id="LSR outside every band"),
        pytest.param(pod("LSE", 5999, cpu="2"), [], id="LSE goes with any band"),
        pytest.param(pod("LS", 5999), [], id="so does LS"),
        pytest.param(pod("LSR", 9999), [f"{REQUESTS}: Required value"], id="LSR without CPUs"),
        pytest.param(pod("LSE", 9999, cpu="0"), [f"{REQUESTS}: Required value"], id="LSE with none"),
        pytest.param(pod("LSE", 9999, cpu="2500m"), [f'{REQUESTS}: Invalid value: "2500m"'], id="half a CPU"),
        pytest.param(pod("LS", 9999, cpu="2500m"), [], id="which LS may have"),
    ],
)
def test_what_a_new_pod_is_refused_for(given: Pod, refused: list[str]) -> None:
    assert places(given) == refused


def test_classes_do_not_change_in_a_life() -> None:
    before, after = pod("LS", 9500, "1"), pod("LSE", 7500, "2", cpu="1")
    assert places(after, before) == [
        f'{QOS}: Invalid value: "LSE"',
        'spec.priority: Invalid value: "koord-mid"',
        f'labels.{keys.PRIORITY}: Invalid value: "2"',
    ]
    assert places(before, before) == []


def test_the_band_may_be_reached_by_another_number() -> None:
    assert places(pod("LS", 9000), pod("LS", 9999)) == []


def test_the_order_inside_a_band_may_change_where_that_is_allowed() -> None:
    assert places(pod(label="2"), pod(label="1"), priority_label_may_change=True) == []


def test_several_errors_are_one_text_as_the_api_server_prints_them() -> None:
    one, two = admission.refusals(pod("LSR", 5000))
    assert admission.message((one,)) == str(one)
    assert admission.message((one, two, one)) == f"[{one}, {two}]"
    assert admission.message(()) == ""
