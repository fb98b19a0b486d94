import json
from pathlib import Path

from candlewright_platform.supervisor import logs, metrics


def test_lines_are_kept_whole_for_any_cuts(tmp_path: Path) -> None:
    log = logs.PartLog(tmp_path, "broker", lambda line: None)
    for piece in (b"on", b"e\ntw", b"o\n", b"three"):
        log.feed(piece)
    log.close()
    assert (tmp_path / "broker.log").read_text() == "one\ntwo\nthree\n"
    assert list(log.last_lines) == ["one", "two", "three"]


def test_a_full_log_moves_aside_and_the_oldest_goes(tmp_path: Path) -> None:
    log = logs.PartLog(tmp_path, "broker", lambda line: None)
    line = b"x" * 60_000 + b"\n"
    for _ in range(4 * logs.MAX_BYTES // len(line)):
        log.feed(line)
    log.close()
    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(file.stat().st_size <= logs.MAX_BYTES for file in tmp_path.iterdir())


def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    log = logs.PartLog(tmp_path, "broker", lambda line: None)
    log.feed(b"y" * (logs.MAX_LINE_BYTES + 1))
    assert log.last_lines[0].endswith("[cut]")
    log.close()


def test_errors_are_reported_and_other_lines_are_not(tmp_path: Path) -> None:
    told: list[str] = []
    log = logs.PartLog(tmp_path, "broker", told.append)
    lines = [
        json.dumps({"event": "job_failed", "level": "error", "ticker": "A/B.X", "timestamp": "now"}),
        json.dumps({"event": "error_page_seen", "level": "info"}),
        'plain text with "level" and error',
    ]
    log.feed("\n".join([*lines, ""]).encode())
    log.close()
    assert told == ["job_failed ticker=A/B.X"]


def test_metrics_pages_are_merged_under_part_labels() -> None:
    page = (
        '# HELP candlewright_x_total Things.\n# TYPE candlewright_x_total counter\ncandlewright_x_total{kind="a"} 3\n'
    )
    merged = metrics.merge({"broker": page, "relay": page, "broken": "}{ nonsense"}).decode()
    assert 'candlewright_x_total{kind="a",part="broker"} 3.0' in merged
    assert 'candlewright_x_total{kind="a",part="relay"} 3.0' in merged
    assert merged.count("# TYPE candlewright_x_total") == 1
