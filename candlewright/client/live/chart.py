"""A live chart as a widget: the console's chart, which reads and follows through the kernel.

No request leaves the page, so the notebook may be on another machine, and needs no network access.
"""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from candlewright.client.errors import GapError
from candlewright.client.live.items import Bar, Tick
from candlewright.client.live.streams import Stream
from candlewright.wire import streams
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.periods import format_period
from candlewright.wire.times import iso_nanoseconds

#: Made of `console/web/src/notebook` with the console's pages; the wheel carries it.
BUNDLE = Path(__file__).with_name("chart.js")
#: Messages within this time are sent together.
PAUSE_SECONDS = 0.1
#: The most items of one message.
MOST_ITEMS = 1_000
#: The number of bars that the page first requests (`console/web/src/chart/feed.ts`).
FIRST_BARS = 600
#: The longest time that a cell waits for them.
FIRST_SECONDS = 2.0
_TIMES = ("open_time", "timestamp", "received_at")


#: Reads `bars` or `ticks` of the HTTP API, as JSON; raises CandlewrightError.
Read = Callable[[str, Mapping[str, object]], bytes]
Follow = Callable[[], tuple[Stream[Bar], Stream[Tick]]]


class Chart(anywidget.AnyWidget):
    """Made by `client.chart(ticker, period)`. It follows the ticker while it is shown; `close()` removes it."""

    ticker = traitlets.Unicode().tag(sync=True)
    period_seconds = traitlets.Int().tag(sync=True)
    height = traitlets.Int().tag(sync=True)
    #: The newest `first_bars` bars, read when the chart is displayed, because a kernel cannot answer a view while it
    #: runs cells. Empty once a view is open.
    first = traitlets.Bytes().tag(sync=True)
    first_bars = traitlets.Int(FIRST_BARS).tag(sync=True)

    def __init__(self, ticker: str, period_seconds: int, *, height: int, read: Read, follow: Follow) -> None:
        if not BUNDLE.is_file():
            raise FileNotFoundError(f"the chart is not bundled in this checkout: ./run build makes {BUNDLE}")
        self._read, self._begin = read, follow
        self._views: set[str] = set()
        self._streams: tuple[Stream[Any], ...] = ()
        super().__init__(ticker=ticker, period_seconds=period_seconds, height=height, _esm=BUNDLE.read_text())
        self.on_msg(self._take)

    def __repr__(self) -> str:
        """The text that a notebook shows if it cannot draw widgets."""
        return f"<Chart {self.ticker} {format_period(self.period_seconds)}>"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        found: list[bytes] = []
        reader = _thread()(target=self._read_first, args=(found,), daemon=True)
        reader.start()
        reader.join(FIRST_SECONDS)
        self.first = found[0] if found else b""
        if not self._streams:
            self._follow()
        return super()._repr_mimebundle_(**options)

    def close(self) -> None:
        self._unfollow()
        super().close()

    def _take(self, _: object, content: Mapping[str, Any], buffers: object) -> None:
        view, what = str(content.get("view")), content.get("what")
        if what == "get":
            self._answer(content)
        elif what == "open":
            self._views.add(view)
            self.first = b""
            if not self._streams:
                self._follow()
        elif what == "close":
            self._views.discard(view)
            if not self._views:
                self._unfollow()

    def _answer(self, content: Mapping[str, Any]) -> None:
        head = {"view": content.get("view"), "answer": content.get("id")}
        path, query = content.get("path"), content.get("query")
        try:
            if path not in ("bars", "ticks") or not isinstance(query, dict):
                raise ValueError(f"a chart does not read {path!r}")
            found = self._read(path, query | {"ticker": self.ticker})
        except (CandlewrightError, ValueError) as error:
            self.send({**head, "error": str(error)})
        else:
            self.send(head, buffers=[found])

    def _read_first(self, found: list[bytes]) -> None:
        query = {
            "ticker": self.ticker,
            "period": format_period(self.period_seconds),
            "limit": FIRST_BARS,
            "order": "last",
        }
        # A view asks again, and reports what is wrong.
        with contextlib.suppress(CandlewrightError, ValueError):
            found.append(self._read("bars", query))

    def _follow(self) -> None:
        try:
            self._streams = self._begin()
        except (CandlewrightError, ValueError) as error:
            self.send({"topic": streams.bars(self.ticker, self.period_seconds), "kind": "failed", "reason": str(error)})
            return
        for stream, packed in zip(self._streams, (list, _as_batch), strict=True):
            _thread()(target=self._pass_on, args=(stream, packed), daemon=True).start()

    def _unfollow(self) -> None:
        for stream in self._streams:
            stream.close()
        self._streams = ()

    def _pass_on(self, stream: Stream[Any], packed: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
        """Runs until the stream or its client is closed."""
        while True:
            found: list[dict[str, Any]] = []
            note: dict[str, str] = {}
            try:
                found.append(_readable(stream.next()))
                while len(found) < MOST_ITEMS:
                    found.append(_readable(stream.next(timeout=0)))
            except TimeoutError:
                pass
            except GapError:
                note = {"kind": "resumed"}
            except CandlewrightError as error:
                note = {"kind": "failed", "reason": str(error)}
            except ValueError:
                return
            if found:
                content = {"topic": stream.topic, "kind": "messages"}
                self.send(content, buffers=[json.dumps(packed(found)).encode()])
            if note:
                self.send({"topic": stream.topic, **note})
            time.sleep(PAUSE_SECONDS)


def _readable(item: Bar | Tick) -> dict[str, Any]:
    """The item as JSON values, with times as the HTTP API writes them."""
    return {name: iso_nanoseconds(value) if name in _TIMES else value for name, value in asdict(item).items()}


def _as_batch(ticks: list[dict[str, Any]]) -> list[Any]:
    return [{"ticks": ticks}]


def _thread() -> Callable[..., threading.Thread]:
    """A thread that can reach the page: in marimo, only marimo's own threads can."""
    marimo = sys.modules.get("marimo")
    if marimo is not None and marimo.running_in_notebook():
        own: Callable[..., threading.Thread] = marimo.Thread
        return own
    return threading.Thread
