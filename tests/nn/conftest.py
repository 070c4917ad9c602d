"""Fixtures of the network tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def float64():
    """Use double precision by default and a fixed seed, so that results can be compared to the last digits."""
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
