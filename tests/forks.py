"""Runs the collected tests in forks of the process that collected them: imports and collection are paid for once.

A fork takes its next file before the last test of its current one, whose fixtures depend on what follows. Its reports
go through a pipe to the first process, which shows them. A test without a report has failed.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import pytest
from _pytest.config import create_terminal_writer

from tests.processes import FORKS, TURNS, Turns


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.stash.get(FORKS, 0)
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    files = [list(tests) for _, tests in groupby(session.items, lambda item: item.path)]
    unread, written = os.pipe()
    os.write(written, b"".join(place.to_bytes(2, "big") for place in range(len(files))))
    os.close(written)
    forks: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            received, sent = multiprocessing.Pipe(duplex=False)
            fork = multiprocessing.get_context("fork").Process(target=_run, args=(session.config, files, unread, sent))
            fork.start()
            sent.close()
            forks[received] = fork
        _show(session, forks)
    finally:
        os.close(unread)
        for fork in forks.values():
            fork.terminate()
        for fork in forks.values():
            fork.join(10)
            if fork.is_alive():
                fork.kill()
    return True


def _show(session: pytest.Session, forks: dict[Connection, BaseProcess]) -> None:
    """Until every fork has ended."""
    hook = session.config.hook
    running: dict[Connection, pytest.Item] = {}
    items = {item.nodeid: item for item in session.items}
    left = dict(items)
    while forks:
        for received in wait(list(forks)):
            assert isinstance(received, Connection)
            try:
                message = received.recv()
            except EOFError:
                fork = forks.pop(received)
                fork.join()
                if (lost := running.pop(received, None)) is not None:
                    del left[lost.nodeid]
                    reason = f"the process ended with code {fork.exitcode}; tests that it had taken did not run"
                    hook.pytest_runtest_logreport(report=_failed(lost, reason))
                continue
            if isinstance(message, str):
                running[received] = items[message]
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=message)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                item = running.pop(received)
                del left[item.nodeid]
                hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
    for item in left.values():
        hook.pytest_runtest_logreport(report=_failed(item, "did not run, because a process of the tests ended"))


def _failed(item: pytest.Item, reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"{item.nodeid}: {reason}",
        when="call",
    )


class _Sender:
    def __init__(self, config: pytest.Config, sent: Connection) -> None:
        self._config = config
        self._sent = sent

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._sent.send(nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._sent.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _run(config: pytest.Config, files: list[list[pytest.Item]], unread: int, sent: Connection) -> None:
    # The files that captured output goes to are shared with the first process, and so is its terminal.
    capture = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    # A run that ends early lets a fork stop its Redis.
    signal.signal(signal.SIGTERM, _end)
    with suppress(pytest.exit.Exception, KeyboardInterrupt), open(os.devnull, "w") as nowhere:  # noqa: PTH123
        config.pluginmanager.get_plugin("terminalreporter")._tw = create_terminal_writer(config, nowhere)
        config.pluginmanager.register(_Sender(config, sent))
        turns = config.stash[TURNS] = Turns(str(os.getppid()))
        item: pytest.Item | None = None
        for upcoming in _taken(files, unread):
            if item is not None:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=upcoming)
            item = upcoming
        if item is not None:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        turns.close()


def _end(*_: object) -> None:
    raise pytest.exit.Exception("the run has ended")


def _taken(files: list[list[pytest.Item]], unread: int) -> Iterator[pytest.Item]:
    while place := os.read(unread, 2):
        yield from files[int.from_bytes(place, "big")]
