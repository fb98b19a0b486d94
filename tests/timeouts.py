"""A test that reached its timeout has failed, even if the exception that should have ended it was lost.

pytest-timeout raises wherever the test is. In a finalizer, which Python may run at any time, the exception is dropped
and the test continues.
"""

import signal
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest

_STOOD = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    result = yield
    raising = signal.getsignal(signal.SIGALRM)
    if settings.method == "signal" and callable(raising):

        def noting(number: int, frame: FrameType | None) -> None:
            # The continuing test may hang again.
            signal.setitimer(signal.ITIMER_REAL, settings.timeout)
            try:
                raising(number, frame)
            except BaseException:
                item.stash[_STOOD] = "".join(traceback.format_stack(frame))
                raise

        signal.signal(signal.SIGALRM, noting)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    stood = item.stash.get(_STOOD, None)
    if stood is not None:
        del item.stash[_STOOD]
        if report.passed:
            report.outcome = "failed"
            report.longrepr = f"{stood}\nThe test reached its timeout here, and went on because this was dropped."
    return report
