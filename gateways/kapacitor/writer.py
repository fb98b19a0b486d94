"""The only way out to the daemon. Some messages end not only their task but the daemon with all its tasks: an empty
response, an end without a begin, a batch with a negative or huge size. None of them gets past here.
"""

import threading
import time
from collections.abc import Callable, Iterable

from protobuf import udf_frames
from protobuf.udf_superset_pb2 import Response

__all__ = ["MAX_BATCH_POINTS", "ResponseWriter", "UnsoundResponse"]

MAX_BATCH_POINTS = 10_000_000


class UnsoundResponse(AssertionError):
    """A response that the daemon must never see, which is a bug of the function that made it."""


class ResponseWriter:
    """`write` takes all of its bytes and flushes them. Threads may share a writer: the responses of one call stay
    together.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._is_in_batch = False
        #: When points were last written, by the monotonic clock.
        self.sent_points_at: float | None = None

    def send(self, responses: Iterable[Response]) -> int:
        """Returns how many were written. Raises UnsoundResponse without writing any of them; OSError if the output is
        no longer read.
        """
        with self._lock:
            is_in_batch = self._is_in_batch
            frames = []
            has_points = False
            for response in responses:
                is_in_batch = _checked(response, is_in_batch=is_in_batch)
                has_points = has_points or response.HasField("point")
                frames.append(udf_frames.encode(response))
            if frames:
                self._write(b"".join(frames))
            self._is_in_batch = is_in_batch
            if has_points:
                self.sent_points_at = time.monotonic()
            return len(frames)


def _checked(response: Response, *, is_in_batch: bool) -> bool:
    """Whether a batch is open after it."""
    kind = response.WhichOneof("message")
    if kind is None:
        raise UnsoundResponse("an empty response")
    if kind == "begin":
        if is_in_batch:
            raise UnsoundResponse("a batch begins inside another one")
        if not 0 <= response.begin.size <= MAX_BATCH_POINTS:
            raise UnsoundResponse(f"a batch of {response.begin.size} points")
        return True
    if kind == "end":
        if not is_in_batch:
            raise UnsoundResponse("a batch ends that never began")
        return False
    return is_in_batch
