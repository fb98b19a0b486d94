"""Background threads and tasks: each is restarted, or ends its process with an error, when it fails.

No other module starts a thread or makes a task (a test looks for it). If the work raises an exception, it is logged and
counted, and then one of three things happens:

- `restarts_after` is set: the work begins again after that pause. `warnings()` names the failure for a while.
- `on_failure` is set: the owner is notified, and raises in its main loop or in its user's next call.
- neither: the process ends with `EXIT_CODE`, so that the supervisor starts it again. In a process that is not a part
  (a user's program, a test) the failure stays in `problems()` permanently instead, and readiness is lost.
"""

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from core.metrics import Counter

__all__ = [
    "EXIT_CODE",
    "awaited_task",
    "collect_rarely",
    "exit_on_failure",
    "forget_failures",
    "loading",
    "only_noted",
    "problems",
    "start_task",
    "start_thread",
    "switch_often",
    "warnings",
]

#: EX_SOFTWARE of sysexits.h.
EXIT_CODE = 70
#: How long a failure with a restart remains a warning.
WARNED_SECONDS = 300.0
_SWITCH_SECONDS = 0.0005

Result = TypeVar("Result")
OnFailure = Callable[[BaseException], object]


class _Failures:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.ends_process = False
        #: Why work has ended permanently, by its name.
        self.ended: dict[str, str] = {}
        #: Why and when work was restarted.
        self.restarted: dict[str, tuple[str, float]] = {}


_failures = _Failures()


def exit_on_failure() -> None:
    """This process is a part: it exits if background work fails and is not restarted."""
    _failures.ends_process = True
    threading.excepthook = _foreign_thread_failed


def problems() -> tuple[str, ...]:
    """Why background work has ended permanently, as sentences."""
    with _failures.lock:
        return tuple(_failures.ended.values())


def warnings() -> tuple[str, ...]:
    """Sentences about work that failed and was restarted recently."""
    now = time.monotonic()
    with _failures.lock:
        return tuple(text for text, at in _failures.restarted.values() if now - at < WARNED_SECONDS)


def only_noted(error: BaseException) -> None:
    """For `on_failure` if other code repeats the work: the log and the counter are enough."""


def forget_failures() -> None:
    """For tests."""
    with _failures.lock:
        _failures.ended.clear()
        _failures.restarted.clear()


def switch_often() -> None:
    """For a process in which a thread that waited for the bus must not wait another five milliseconds for a busy
    one."""
    sys.setswitchinterval(_SWITCH_SECONDS)


def spare_startup() -> None:
    """Exclude all objects made so far from garbage collection, because they stay. A full collection stops the process
    until it has visited every object: the driver for 0.1 to 0.3 s every few seconds.
    """
    gc.freeze()


@contextmanager
def loading() -> Iterator[None]:
    """Around the import of large modules, or the reading of a large state, of which a sixth to a third of the time is a
    search for garbage: nearly everything that they make stays, and is never searched.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_rarely() -> None:
    """For a process that makes many objects, nearly all of which are freed by their reference counts: collect garbage
    after 20,000 further objects instead of 700."""
    gc.set_threshold(20_000)


def start_thread(
    name: str,
    run: Callable[[], object],
    *,
    restarts_after: float | None = None,
    stopping: threading.Event | None = None,
    on_failure: OnFailure | None = None,
) -> threading.Thread:
    """A running daemon thread. `restarts_after`: seconds before another attempt, until `stopping` is set."""
    stopping = stopping or threading.Event()

    def guarded() -> None:
        while True:
            try:
                run()
                return
            except BaseException as error:
                _note(name, error)
                if restarts_after is None or not isinstance(error, Exception):
                    if _end(name, error, on_failure):
                        return
                    raise
                _note_restart(name, error)
            if stopping.wait(restarts_after):
                return

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    return thread


def start_task(
    work: Callable[[], Coroutine[Any, Any, None]],
    name: str,
    *,
    restarts_after: float | None = None,
    on_failure: OnFailure | None = None,
) -> "asyncio.Task[None]":
    """A task whose result no caller awaits. `work` makes its coroutine, again for each restart. The caller keeps
    the task: the loop does not.
    """

    async def guarded() -> None:
        while True:
            try:
                await work()
                return
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                _note(name, error)
                if restarts_after is None or not isinstance(error, Exception):
                    if _end(name, error, on_failure):
                        return
                    raise
                _note_restart(name, error)
            await asyncio.sleep(restarts_after)

    return awaited_task(guarded(), name)


def awaited_task(work: Coroutine[Any, Any, Result], name: str | None = None) -> "asyncio.Task[Result]":
    """A task whose result the caller awaits. An exception that no caller reads is logged and counted."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_unread)
    return loop.create_task(work, name=name)


def _note(name: str, error: BaseException) -> None:
    # Loaded only now: Kapacitor waits for the first answer of a function that uses this module.
    from candlewright.wire.errors import RoleLost
    from core.log import get_logger

    _counter().labels(name).inc()
    if isinstance(error, RoleLost):
        # Every thread of the part gets this error, and none is at fault.
        get_logger().warning("role_lost", **error.fields, name=name)
    else:
        get_logger().error("background_failed", name=name, error=repr(error), exc_info=error)


@cache
def _counter() -> "Counter":
    from core.metrics import REGISTRY, Counter

    return Counter(
        "candlewright_background_failures_total",
        "Exceptions that ended a background thread or task, whether or not it was started again.",
        ["name"],
        registry=REGISTRY,
    )


def _note_restart(name: str, error: BaseException) -> None:
    with _failures.lock:
        _failures.restarted[name] = (f"{name} failed and was started again: {_told(error)}", time.monotonic())


def _end(name: str, error: BaseException, on_failure: OnFailure | None) -> bool:
    """Whether the owner has taken the failure."""
    if on_failure is not None:
        on_failure(error)
        return True
    with _failures.lock:
        _failures.ended[name] = f"{name} has ended: {_told(error)}"
    if _failures.ends_process:
        sys.stderr.flush()
        # Not sys.exit, which would end only this thread. Acknowledged work is already durable.
        os._exit(EXIT_CODE)
    return False


def _told(error: BaseException) -> str:
    text = str(error).strip().partition("\n")[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _foreign_thread_failed(args: "threading.ExceptHookArgs") -> None:
    """A library's own thread (py4j, gRPC): if its end matters, the code that waits for it notices."""
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _note(f"thread {args.thread.name}" if args.thread is not None else "thread", args.exc_value)


def _unread(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Of callbacks, and of tasks whose exception was not read before they were garbage-collected."""
    error, future = context.get("exception"), context.get("future")
    if isinstance(error, ConnectionError) and future is not None and not isinstance(future, asyncio.Task):
        # The end of a stream of asyncio, for which only `wait_closed` would wait.
        return
    if isinstance(error, BaseException):
        _note("unread task", error)
    else:
        from core.log import get_logger

        get_logger().error("event_loop_error", error=str(context.get("message", "")))
