"""A node that koordlet left."""

from __future__ import annotations

from pathlib import Path

import pytest
from koordletnode import Left


@pytest.fixture
def left(tmp_path: Path):
    """Makes a node that koordlet left."""
    return lambda shape, **how: Left(shape, tmp_path, **how)
