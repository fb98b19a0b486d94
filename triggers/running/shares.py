"""Limits how much of a step each trigger of a partition may take: one that keeps taking more falls behind, alone.

A step's share is `TriggerRules.share_ns`, or more if the step brings many rows: all triggers lag then, and their total
matters. It is measured in processor time, because a busy machine is not a trigger's fault.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from candlewright_cep import Clock
from triggers.running.outcome import TriggerOutput
from triggers.running.registry import Registry
from triggers.running.streams import Shard
from triggers.texts.check import TriggerRules

__all__ = ["Shares"]

#: Processor time per row that a trigger may always take: 50,000 rows a second.
_ROW_NS = 20_000
#: This many steps in succession must exceed the share, so that a single slow step does not count.
_SLOW_STEPS = 2
_MILLISECOND = 1_000_000


@dataclass(slots=True)
class _Spent:
    nanoseconds: int = 0
    rows: int = 0


class Shares:
    """Call `begin` for each step, `spend` for the work of each stream, `turns` for streams that are behind, then
    `settle`.

    `turn`: the number of the stream that had the last turn; it is part of the state, as are the backlogs.
    `is_counting`: false for steps that are repeated: no stream falls behind in them.
    """

    def __init__(self, rules: TriggerRules, registry: Registry) -> None:
        self.turn = -1
        self.is_counting = True
        self._rules = rules
        self._registry = registry
        self._share_ns = 0
        self._spent: dict[int, _Spent] = {}
        self._slow: dict[int, int] = {}
        self._behind: set[int] = set()

    @property
    def is_behind(self) -> bool:
        """Whether rows wait that can be processed without further records."""
        return any(True for _ in self._backlogs())

    @property
    def has_slow(self) -> bool:
        """Whether a stream gets its rows after the others, even if none wait now."""
        shards = self._registry.shards
        return any(number in shards and shards[number].backlog is not None for number in self._behind)

    def restore(self, turn: int) -> None:
        self.turn = turn
        self._behind = {number for number, shard in self._registry.shards.items() if shard.backlog is not None}

    def begin(self, rows: int) -> None:
        """Begin a step with this many rows."""
        self._share_ns = max(self._rules.share_ns, rows * _ROW_NS)
        self._spent.clear()

    def now(self) -> int:
        """Processor time without that of views, which is divided among their readers."""
        return time.thread_time_ns() - self._registry.views.spent_ns

    def spend(self, number: int, shard: Shard, since: int) -> None:
        """Count the work of a stream since `now` returned `since`, and its part of that of its views. The state is
        written once per step.
        """
        if self._rules.share_ns and self.is_counting:
            spent = self._spent.setdefault(number, _Spent(shard.save_ns))
            spent.nanoseconds += self.now() - since + shard.view_ns
            spent.rows += shard.rows_fed

    def turns(self) -> Iterator[tuple[int, Shard, int]]:
        """The streams that have a turn now and how many rows each may take: as many streams as seem to fit the share
        of one, at least one; all, and all rows, if shares are not limited.
        """
        waiting = sorted(self._backlogs(), key=lambda one: (one[0] <= self.turn, one[0]))
        left = float(self._share_ns)
        for number, shard in waiting:
            backlog = shard.backlog
            if backlog is None:
                continue
            if not self._rules.share_ns:
                yield number, shard, backlog.rows + len(backlog)
                continue
            if left <= 0:
                break
            left -= backlog.turn_ns
            self.turn = number
            yield number, shard, backlog.most

    def settle(self, clocks: Mapping[int, Clock], output: TriggerOutput) -> None:
        """Decide from the cost of this step which streams are behind in the next one. `clocks`: the current ones, by
        input.
        """
        for number, spent in self._spent.items():
            shard = self._registry.shards.get(number)
            if shard is None:
                self._slow.pop(number, None)
            elif shard.backlog is not None:
                self._measured(number, shard, spent)
            elif spent.nanoseconds <= self._share_ns or not shard.can_wait:
                self._slow.pop(number, None)
            else:
                self._slow[number] = self._slow.get(number, 0) + 1
                if self._slow[number] >= _SLOW_STEPS:
                    self._fall_behind(number, shard, spent, clocks)
        self._suspend(output)

    def _measured(self, number: int, shard: Shard, spent: _Spent) -> None:
        backlog = shard.backlog
        assert backlog is not None
        if spent.rows:
            backlog.measure(spent.nanoseconds, spent.rows, share_ns=self._share_ns)
        if not self._rules.share_ns or (not len(backlog) and spent.nanoseconds <= self._share_ns / 2):
            shard.backlog = None
            self._registry.version += 1
            self._behind.discard(number)

    def _fall_behind(self, number: int, shard: Shard, spent: _Spent, clocks: Mapping[int, Clock]) -> None:
        """Split triggers that share the stream until the slow one is alone."""
        del self._slow[number]
        if len(shard.leaders) > 1:
            parts = shard.split()
            self._registry.forget(number)
            for part in parts:
                # How the cost divides between the two is not known.
                self._slow[self._registry.keep(part)] = _SLOW_STEPS - 1
            return
        self._registry.part(shard)
        shard.fall_behind(spent.nanoseconds, spent.rows, clocks)
        self._registry.version += 1
        self._behind.add(number)

    def _suspend(self, output: TriggerOutput) -> None:
        for _, shard in list(self._backlogs()):
            backlog = shard.backlog
            if backlog is not None and backlog.rows > self._rules.waiting_rows:
                cost = backlog.cost_ns / _MILLISECOND
                reason = (
                    f"too slow: a row takes it {cost:.3g} ms, and {backlog.rows:,} rows wait "
                    f"(triggers.max_waiting_rows = {self._rules.waiting_rows:,})"
                )
                for trigger_id in shard.trigger_ids:
                    self._registry.suspend(self._registry.triggers[trigger_id], reason, output)

    def _backlogs(self) -> Iterator[tuple[int, Shard]]:
        """The streams with a non-empty backlog."""
        shards = self._registry.shards
        for number in list(self._behind):
            shard = shards.get(number)
            if shard is None or shard.backlog is None:
                self._behind.discard(number)
            elif len(shard.backlog):
                yield number, shard
