"""After `relocate` a moved data directory has its rows and old snapshots, and takes commits; kills included."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from candlewright.wire.errors import ConfigurationError, DirectoryMoved
from core.settings import IcebergSettings, Settings
from core.table_files import check_not_moved
from iceberg import COVERAGE, create_tables, open_catalog, relocate
from iceberg import relocation as relocating

COMMITS = 5


def fill(folder: Path) -> None:
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog, [COVERAGE])
    for number in range(COMMITS):
        # Loaded each time, as in other processes; merged manifests would hide old ones.
        catalog.load_table(COVERAGE.identifier).append(row(number))


def row(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"request_id": str(number), "expected": number}], COVERAGE.arrow_schema)


def coverage(folder: Path) -> Table:
    return open_catalog(Settings(data_dir=folder)).load_table(COVERAGE.identifier)


def requests(table: Table, snapshot: int | None = None) -> list[str]:
    return sorted(table.scan(snapshot_id=snapshot).to_arrow()["request_id"].to_pylist())


def assert_whole(folder: Path, *gone: Path) -> None:
    table = coverage(folder)
    assert requests(table) == [str(number) for number in range(COMMITS)]
    for count, snapshot in enumerate(table.metadata.snapshots, 1):
        assert requests(table, snapshot.snapshot_id) == [str(number) for number in range(count)]
    table.append(row(COMMITS))
    assert len(requests(coverage(folder))) == COMMITS + 1
    for file in folder.rglob("metadata/*.metadata.json"):
        assert not any(f"{before}/" in file.read_text() for before in gone)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "before"
    fill(folder)
    return folder


@pytest.mark.parametrize("place", ["after", "before-2", "a/much/longer/path/to/the/data", "x"])
def test_rows_and_old_snapshots_of_a_moved_directory(filled: Path, tmp_path: Path, place: str) -> None:
    moved = tmp_path / place
    moved.parent.mkdir(parents=True, exist_ok=True)
    filled.rename(moved)
    with pytest.raises(DirectoryMoved, match=f"candlewright relocate --data-dir {moved}"):
        coverage(moved)
    found = relocate(Settings(data_dir=moved))
    assert found is not None
    assert (found.before, found.now) == (filled / "warehouse", moved / "warehouse")
    assert_whole(moved, filled)
    assert relocate(Settings(data_dir=moved)) is None


def test_a_directory_moved_into_itself_and_back(filled: Path, tmp_path: Path) -> None:
    """One of the two paths is a prefix of the other, in both directions."""
    inner = filled / "warehouse" / "warehouse"
    filled.rename(tmp_path / "aside")
    inner.parent.mkdir(parents=True)
    (tmp_path / "aside").rename(inner)
    assert relocate(Settings(data_dir=inner)) is not None
    inner.rename(tmp_path / "aside")
    shutil.rmtree(filled)
    (tmp_path / "aside").rename(filled)
    assert relocate(Settings(data_dir=filled)) is not None
    assert_whole(filled, inner)


def test_a_copy_does_not_write_into_the_original(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(filled, copy)
    with pytest.raises(DirectoryMoved):
        coverage(copy)
    relocate(Settings(data_dir=copy))
    assert_whole(copy)
    assert_whole(filled)


def test_another_name_of_the_same_directory_is_not_a_move(filled: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(filled)
    check_not_moved(Settings(data_dir=tmp_path / "link"))
    assert relocate(Settings(data_dir=tmp_path / "link")) is None


def test_setting_another_warehouse_is_not_a_move_of_the_tables(filled: Path, tmp_path: Path) -> None:
    settings = Settings(data_dir=filled, iceberg=IcebergSettings(warehouse=f"file://{tmp_path}/new"))
    check_not_moved(settings)
    assert relocate(settings) is None


def test_a_kill_after_any_file_is_repaired_by_another_run(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = relocating._replace
    done = 0
    while True:
        moved = tmp_path / f"moved-{done}"
        shutil.copytree(filled, moved)
        left = done

        def replace_some(file: Path, content: bytes) -> bool:
            nonlocal left
            if left == 0:
                (file.parent / f"{file.name}.relocating").write_bytes(content[:10])
                raise KeyboardInterrupt
            left -= 1
            return replace(file, content)

        monkeypatch.setattr(relocating, "_replace", replace_some)
        try:
            relocate(Settings(data_dir=moved))
        except KeyboardInterrupt:
            monkeypatch.setattr(relocating, "_replace", replace)
            with pytest.raises(DirectoryMoved):
                check_not_moved(Settings(data_dir=moved))
            assert relocate(Settings(data_dir=moved)) is not None
            assert_whole(moved, filled)
            assert not list(moved.rglob("*.relocating"))
            shutil.rmtree(moved)
            done += 3
            continue
        break
    assert done > 3 * COMMITS, "manifests, their lists and metadata"


def test_a_damaged_file_is_named_and_the_catalog_stays(filled: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    filled.rename(moved)
    damaged = next(moved.rglob("snap-*.avro"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    with pytest.raises(ConfigurationError, match=f"{damaged} cannot be rewritten: it is truncated"):
        relocate(Settings(data_dir=moved))
    with pytest.raises(DirectoryMoved):
        check_not_moved(Settings(data_dir=moved))
