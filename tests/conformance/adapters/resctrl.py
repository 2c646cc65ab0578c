"""Cache masks, bandwidth values, schemata lines."""

from __future__ import annotations

from typing import Any

from koordlite.formulas import schemata
from koordlite.model.snapshot import BandwidthCapability, CacheCapability
from tests.conformance.adapters import adapter


@adapter("resctrl.l3_mask")
def mask(given: Any, expect: Any) -> tuple[Any, Any]:
    return _mask(given["cbm"], given["startPercent"], given["endPercent"]), expect["mask"]


@adapter("koord_cat_l3_mask")
def recorded_mask(given: Any, expect: Any) -> tuple[Any, Any]:
    return _mask(int(given["cbm"], 16), given["start"], given["end"]), expect


def _mask(cbm: int, start: int, end: int) -> str:
    try:
        cap = CacheCapability(cbm_mask=cbm, min_cbm_bits=1)
        return f"{schemata.cache_mask(start_percent=start, end_percent=end, cap=cap):x}"
    except ValueError:
        return ""


@adapter("resctrl.mba_value")
def bandwidth(given: Any, expect: Any) -> tuple[Any, Any]:
    amd = given["vendorID"] == "AuthenticAMD"
    cap = BandwidthCapability(0, 1, 2048, delay_linear=False) if amd else BandwidthCapability(10, 10, 100)
    found = schemata.bandwidth(percent=given["mbaPercent"], cap=cap)
    return "" if found is None else str(found), expect["value"]


@adapter("resctrl.schemata_format")
def lines(given: Any, expect: Any) -> tuple[Any, Any]:
    masks = dict.fromkeys(given["cacheIds"], int(given["l3Mask"], 16))
    shares = dict.fromkeys(given["cacheIds"], int(given["mb"]))
    # The kernel takes a line with and without the last separator; ours goes without.
    found = {"l3": schemata.line("L3", masks) + ";\n", "mb": schemata.line("MB", shares) + ";\n"}
    return found, expect
