"""Classes and bands."""

from __future__ import annotations

import pytest

from koordlite.model.qos import KubeQoS, PriorityClass, QoSClass, priority_class, raw_priority_class, with_default


@pytest.mark.parametrize(
    ("label", "qos"), [("LSE", "LSE"), ("SYSTEM", "SYSTEM"), ("ls", ""), ("", ""), (None, ""), ("other", "")]
)
def test_the_label_is_case_sensitive(label: str | None, qos: str) -> None:
    assert QoSClass.of_label(label).value == qos


@pytest.mark.parametrize(
    ("kube", "qos"),
    [(KubeQoS.GUARANTEED, QoSClass.LSR), (KubeQoS.BURSTABLE, QoSClass.LS), (KubeQoS.BEST_EFFORT, QoSClass.BE)],
)
def test_without_a_label_the_kubernetes_class_decides(kube: KubeQoS, qos: QoSClass) -> None:
    assert with_default(QoSClass.NONE, kube) is qos
    assert with_default(QoSClass.LSE, kube) is QoSClass.LSE


@pytest.mark.parametrize(
    ("label", "priority", "band"),
    [
        (None, 9000, "koord-prod"),
        (None, 9999, "koord-prod"),
        (None, 10000, ""),
        (None, 8999, ""),
        (None, 7000, "koord-mid"),
        (None, 5999, "koord-batch"),
        (None, 3000, "koord-free"),
        (None, 2_000_000_000, ""),
        (None, None, ""),
        ("koord-mid", 9500, "koord-mid"),
        ("unknown", 9500, ""),
        ("", 9500, ""),
    ],
)
def test_the_band_comes_from_the_label_if_there_is_one(label: str | None, priority: int | None, band: str) -> None:
    assert raw_priority_class(label, priority).value == band


@pytest.mark.parametrize(
    ("qos", "band"),
    [(QoSClass.BE, PriorityClass.BATCH), (QoSClass.LSR, PriorityClass.PROD), (QoSClass.SYSTEM, "koord-prod")],
)
def test_outside_every_band_the_qos_class_decides(qos: QoSClass, band: str) -> None:
    assert priority_class(None, 2_000_000_000, qos) == band
    assert priority_class("unknown", 9500, qos) == band
