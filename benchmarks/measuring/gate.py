"""The gate at which a measured query waits between two micro-batches."""

import threading

__all__ = ["Gate"]


class Gate:
    """Initially closed: a caller of `wait` after a micro-batch continues once the gate is open. `reached`: a caller
    waits or has waited since the gate was closed.
    """

    def __init__(self, *, is_open: bool = False) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()
        if is_open:
            self.open()

    def open(self) -> None:
        self._opened.set()

    def close(self) -> None:
        self._opened.clear()
        self.reached.clear()

    def wait(self) -> None:
        if not self._opened.is_set():
            self.reached.set()
        self._opened.wait()
