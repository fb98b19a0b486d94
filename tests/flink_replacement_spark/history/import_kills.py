"""Imports by processes that are killed at random calls of their own code. As a script, this prints every fault found.

One process with everything imported forks each of them: `order` lays a file into the data directory as `candlewright
import` does, `carry_out` writes it as the driver does.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from bus import topics
from bus.connect import connect
from candlewright.cli.output import Output
from candlewright_platform.cli.stored import importing
from core.imports import Import, folder_of
from core.settings import load_settings
from flink_replacement_spark.history.importer import Importer
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import OHLC, OHLC_REVISIONS, TICKS, create_tables, load_table, open_catalog

ROWS = 40
FORMATS = {"binance-klines": (OHLC, OHLC_REVISIONS), "binance-trades": (TICKS,)}
START = 1_704_067_200_000
#: Files in whose calls the process may be killed.
COUNTED = ("/datasets/", "/iceberg/", "/history/", "/importing.py", "/pyiceberg/", "/bus/")


def report(fault: str) -> None:
    sys.stdout.write(f"wrong: {fault}\n")
    sys.stdout.flush()


def order(folder: Path, of: str, number: int, *, waiting: Callable[[float], object]) -> None:
    """`waiting`: what the command does while the driver works."""
    clock = SimpleNamespace(sleep=waiting, monotonic=time.monotonic, time=time.time)
    vars(importing)["time"] = clock
    file = folder / f"{number}.csv"
    importing.import_files(
        [file], of, "BTC/USDT.BINANCE", period=None, mapping=[], differences=folder / "differences.csv",
        output=Output.json, data_dir=None, config=None,
    )  # fmt: skip


def carry_out() -> None:
    settings = load_settings()
    with closing(connect(settings.bus)) as bus:
        catalog = open_catalog(settings)
        Importer(bus, catalog, TableLocks(), data_dir=settings.data_dir, stopping=threading.Event()).step()


def rows_of(of: str, number: int) -> list[str]:
    if of == "binance-trades":
        ids = range(number * ROWS, (number + 1) * ROWS)
        return [f"{each},1.5,2,3,{START + each},True,True" for each in ids]
    opens = [START + 60_000 * each for each in range(number * ROWS, (number + 1) * ROWS)]
    return [f"{each},1,2,0.5,1.5,10,{each + 59_999},15,3,5,7,0" for each in opens]


def stored(of: str, number: int) -> list[int]:
    """The number of the file's rows in each table."""
    settings = load_settings()
    found = []
    for table in FORMATS[of]:
        rows = load_table(open_catalog(settings), table).scan().to_arrow()
        if of == "binance-trades":
            keys = [int(each) for each in rows["trade_id"].to_pylist()]
        else:
            keys = [(int(each.timestamp() * 1_000) - START) // 60_000 for each in rows["open_time"].to_pylist()]
        found.append(sum(number * ROWS <= each < (number + 1) * ROWS for each in keys))
    return found


def killed_at(call: int, act: Callable[[], object]) -> int:
    """Run `act` in a process that is killed at this call (0: never); returns its number of calls, 0 if it was
    killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        calls = 0

        def count(frame: FrameType, event: str, _: Any) -> None:
            nonlocal calls
            if event == "call" and any(part in frame.f_code.co_filename for part in COUNTED):
                calls += 1
                if calls == call:
                    os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.setprofile(count)
            act()
            sys.setprofile(None)
            os.write(writer, str(calls + 1).encode())
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as opened:
        return int(opened.read() or 0)


def alone(act: Callable[[], object]) -> None:
    if not killed_at(0, act):
        report("an import failed that was not killed")


def end(_: float) -> None:
    """Exit when the given order is done, because no call remains at which to kill the process."""
    raise SystemExit


def given(folder: Path, of: str, number: int) -> None:
    try:
        order(folder, of, number, waiting=end)
    except SystemExit:
        return


def finished(folder: Path, of: str, number: int) -> None:
    order(folder, of, number, waiting=lambda _: carry_out())


def check(of: str, number: int, allowed: tuple[int, ...], *, what: str) -> None:
    counts = stored(of, number)
    if any(count not in allowed for count in counts):
        report(f"{what}: {counts} rows of {ROWS} in {[table.name for table in FORMATS[of]]}")


def main(folder: Path, rounds: int, seed: int) -> None:
    draw = random.Random(seed)
    number = 0
    alone(lambda: create_tables(open_catalog(load_settings())))
    for of in FORMATS:
        calls: dict[str, int] = {}
        for turn in range(rounds + 1):
            number += 1
            (folder / f"{number}.csv").write_text("\n".join(rows_of(of, number)))
            steps = {"order": lambda: given(folder, of, number), "carry out": carry_out}  # noqa: B023
            for name, act in steps.items():
                if not turn:
                    calls[name] = killed_at(0, act)
                    continue
                place = draw.randint(1, calls[name])
                killed_at(place, act)
                alone(lambda at=f"{of}: {name} killed at call {place}": check(of, number, (0, ROWS), what=at))  # noqa: B023
            alone(lambda: finished(folder, of, number))  # noqa: B023
            alone(lambda: check(of, number, (ROWS,), what=f"{of}: after the second run"))  # noqa: B023
        sys.stderr.write(f"{of}: killed in {rounds} of {calls}\n")
    alone(check_nothing_left)


def check_nothing_left() -> None:
    settings = load_settings()
    with closing(connect(settings.bus)) as bus:
        open_ = [each for each in map(Import.from_bytes, bus.items(topics.TABLE_IMPORTS).values()) if not each.is_over]
    left = [file.name for file in folder_of(settings.data_dir).iterdir() if not file.name.startswith(".")]
    for each in (*open_, *left):
        report(f"left {each}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
