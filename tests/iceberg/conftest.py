from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from core.settings import Settings
from iceberg import create_tables, open_catalog


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
def catalog(settings: Settings) -> Catalog:
    catalog = open_catalog(settings)
    create_tables(catalog)
    return catalog
