"""Classes and bands."""

from __future__ import annotations

import pytest

from koordlite.model.pod.qos import (
    KubeQoS,
    PriorityClass,
    QoSClass,
    priority_class,
    priority_value,
    raw_priority_class,
    sub_priority,
    with_default,
)


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


@pytest.mark.parametrize(
    ("priority", "band", "value"),
    [
        (5999, PriorityClass.PROD, 5999),
        (-1, PriorityClass.PROD, -1),
        (0, PriorityClass.PROD, 9500),
        (None, PriorityClass.PROD, 9500),
        (None, PriorityClass.MID, 7500),
        (None, PriorityClass.BATCH, 5500),
        (None, PriorityClass.FREE, 3500),
        (None, PriorityClass.NONE, 0),
    ],
)
def test_the_number_is_the_given_one_or_that_of_the_band(priority: int | None, band: PriorityClass, value: int) -> None:
    assert priority_value(priority, band) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, 0),
        ("", 0),
        ("0", 0),
        ("9100", 9100),
        ("-5", -5),
        ("+5", 5),
        ("0x1F", 31),
        ("0X1f", 31),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("-017", -15),
        ("0_17", 15),
        ("1_000", 1000),
        ("0x_ff", 255),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_the_order_inside_a_band_is_written_as_in_go(text: str | None, value: int) -> None:
    assert sub_priority(text) == value


@pytest.mark.parametrize(
    "text", ["08", "1__0", "_1", "1_", "0x", "1.5", " 1", "1\n", "١", "high", "2147483648", "--1", "1e3"]
)
def test_what_go_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"whole number|32 bits"):
        sub_priority(text)
