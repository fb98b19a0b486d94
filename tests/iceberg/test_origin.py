"""A catalog that several platforms share holds data of real exchanges or of the sandbox."""

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from candlewright.wire.errors import ConfigurationError
from core.origin import Origin
from core.settings import Settings
from iceberg import is_shared, settle_origin


def test_the_first_platform_decides(catalog: Catalog) -> None:
    settle_origin(catalog, Origin.EXCHANGES)
    settle_origin(catalog, Origin.EXCHANGES)
    with pytest.raises(ConfigurationError, match="real exchanges"):
        settle_origin(catalog, Origin.SANDBOX)


def test_a_catalog_outside_the_data_directory_may_be_shared(tmp_path: Path) -> None:
    def shared(**iceberg: str) -> bool:
        return is_shared(Settings.model_validate({"data_dir": tmp_path, "iceberg": iceberg}))

    assert not shared()
    assert shared(uri=str(tmp_path / "other.db"))
    assert shared(catalog="rest", uri="http://127.0.0.1:8181")
