"""Fixtures that every folder of tests may use."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded market data beside the checkout; a test that needs it skips where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"recorded market data is missing: {folder}")
        pytest.skip(f"no recorded market data at {folder}")
    return folder
