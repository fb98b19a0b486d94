"""Deliberate faults: rules, and the decision which rule strikes a request or streamed trade. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

RestKind = Literal["status", "html", "truncate", "empty", "short", "none", "repeat", "delay", "hang", "reset"]
StreamKind = Literal["close", "abort", "freeze", "duplicate", "swap", "late", "drop"]
REST_KINDS: frozenset[str] = frozenset(get_args(RestKind))
STREAM_KINDS: frozenset[str] = frozenset(get_args(StreamKind))
_ONCE = frozenset({"close", "abort", "freeze"})


@dataclass(kw_only=True, frozen=True, slots=True)
class Fault:
    """One rule. REST rules match the request path (a shell pattern), stream rules each trade about to be sent.

    The first `after` matches pass unharmed; the next `count` matches (None: all) are struck, each with `probability`.
    Ending a connection (close, abort, freeze) happens once unless `count` says otherwise.

    - status: answer `status` with `body` (an object becomes JSON), `headers` and Retry-After `retry_after` seconds
    - html: status 200 and a web page; empty: status 200 without a body; truncate: the reply cut in its middle
    - short: only the first `rows` rows (half of them by default); none: `[]`; repeat: the previous reply once more
    - delay: answer after `seconds`; hang: never answer; reset: cut the connection
    - close: websocket close with `code`; abort: cut without a close frame; freeze: silence for `seconds` (0: forever)
    - duplicate: send the trade twice; swap: send it after the next one; late: send it `seconds` later than the others;
      drop: do not send it
    """

    kind: RestKind | StreamKind
    path: str = "*"
    symbol: str | None = None
    after: int = 0
    count: int | None = None
    probability: float = 1.0
    status: int = 500
    body: Any = ""
    headers: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    rows: int | None = None
    seconds: float = 0.0
    code: int = 1006

    def __post_init__(self) -> None:
        if self.kind not in REST_KINDS | STREAM_KINDS:
            raise ValueError(f"{self.kind!r} is not a kind of fault; known: {sorted(REST_KINDS | STREAM_KINDS)}")
        if not 0 <= self.probability <= 1 or self.after < 0 or (self.count is not None and self.count < 0):
            raise ValueError("probability must be 0 to 1, after and count not negative")

    @property
    def strikes(self) -> int | None:
        """How many matches are struck; None means all."""
        return 1 if self.count is None and self.kind in _ONCE else self.count


@dataclass(slots=True)
class _Rule:
    fault: Fault
    seen: int = 0
    struck: int = 0


class FaultRules:
    """The active rules. Each rule counts its matches; the first one that is due strikes."""

    def __init__(self, seed: int = 0) -> None:
        self._rules: dict[int, _Rule] = {}
        self._next_id = 1
        self._random = random.Random(seed)

    def add(self, fault: Fault) -> int:
        """Add a rule; returns its id."""
        rule_id, self._next_id = self._next_id, self._next_id + 1
        self._rules[rule_id] = _Rule(fault)
        return rule_id

    def remove(self, rule_id: int) -> bool:
        """Remove one rule; False if there is none with that id."""
        return self._rules.pop(rule_id, None) is not None

    def clear(self) -> None:
        """Remove all rules."""
        self._rules.clear()

    def for_request(self, path: str, symbol: str | None) -> Fault | None:
        """The fault that strikes this request, if any."""
        return self._strike(REST_KINDS, path, symbol)

    def for_trade(self, path: str, symbol: str) -> Fault | None:
        """The fault that strikes this trade on a websocket opened at `path`, if any."""
        return self._strike(STREAM_KINDS, path, symbol)

    def describe(self) -> list[dict[str, Any]]:
        """Each rule, with the numbers of its matches and strikes."""
        return [
            {"id": rule_id, "kind": rule.fault.kind, "path": rule.fault.path, "seen": rule.seen, "struck": rule.struck}
            for rule_id, rule in self._rules.items()
        ]

    def any_for_streams(self) -> bool:
        """Whether any rule can strike a streamed trade."""
        return any(rule.fault.kind in STREAM_KINDS for rule in self._rules.values())

    def _strike(self, kinds: frozenset[str], path: str, symbol: str | None) -> Fault | None:
        struck = None
        for rule in self._rules.values():
            fault = rule.fault
            if fault.kind not in kinds or not fnmatchcase(path, fault.path):
                continue
            if fault.symbol is not None and fault.symbol.replace("/", "") != symbol:
                continue
            rule.seen += 1
            spent = fault.strikes is not None and rule.struck >= fault.strikes
            if struck is not None or spent or rule.seen <= fault.after or self._random.random() >= fault.probability:
                continue
            rule.struck += 1
            struck = fault
        return struck
