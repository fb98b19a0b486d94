"""The triggers registered in one bus partition, and the streams they run in."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from bus.api import partition_of
from candlewright_cep import TriggerRejected
from protobuf import records_pb2 as records
from triggers.records.lookback import LookbackRequest
from triggers.records.moved import Moved
from triggers.running.outcome import TriggerOutput, TriggerReport
from triggers.running.plans import Plans
from triggers.running.streams import Saved, Shard
from triggers.running.trigger import Common, Text, Trigger
from triggers.running.views import Views
from triggers.texts.check import INPUTS, TriggerRules, compile_trigger, is_joint

__all__ = ["Registry"]

_TRADES = frozenset(INPUTS["ticks"].schema.names)


@dataclass(frozen=True, slots=True)
class Needs:
    """What the streams need of each step. `columns`: of trades; `as_they_come`: whether a stream takes trades out of
    order; `revised`: for streams over all revisions of bars, whether they take all tickers in one order; `periods`:
    those of bars that triggers name; `silent`: the streams of dead-man triggers.
    """

    columns: frozenset[str]
    as_they_come: bool
    revised: tuple[bool, ...]
    periods: frozenset[int]
    silent: tuple[Shard, ...]

    @classmethod
    def of(cls, shards: Collection[Shard]) -> "Needs":
        compiled = {id(shard.compiled): shard.compiled for shard in shards}.values()
        read = [_TRADES if one.columns is None else one.columns for one in compiled if one.reads_trades]
        return cls(
            columns=frozenset[str]().union(*read),
            as_they_come=any(one.is_stateless for one in compiled),
            revised=tuple(sorted({one.query.needs_merge for one in compiled if one.options.revisions})),
            periods=frozenset(period for one in compiled for period in one.periods),
            silent=tuple(shard for shard in shards if shard.compiled.options.deadman_ns),
        )


class Registry:
    """`triggers`: by id, including suspended ones. `shards`: streams by number, in the order they began.

    `version`: changes whenever something is registered or removed, or the streams change.
    """

    def __init__(self, rules: TriggerRules, number: int) -> None:
        self.rules = rules
        self.number = number
        self._plans = Plans(rules)
        self.triggers: dict[str, Trigger] = {}
        self.shards: dict[int, Shard] = {}
        self.views = Views()
        self.next_shard = 0
        self.version = 0
        self._by_ticker: dict[str, set[int]] = {}
        self._every: set[int] = set()
        self._events: set[int] = set()
        self._by_key: dict[str, set[int]] = {}
        self._shard_of: dict[str, int] = {}
        self._needs: tuple[int, Needs] | None = None
        self._next_place = 0
        self._changed: set[str] = set()
        self._lived: set[str] = set()

    @property
    def takes_every_ticker(self) -> bool:
        return bool(self._every)

    @property
    def needs(self) -> Needs:
        if self._needs is None or self._needs[0] != self.version:
            self._needs = self.version, Needs.of(self.shards.values())
        return self._needs[1]

    def takes(self, ticker: str) -> bool:
        """Whether a trigger names this ticker."""
        return bool(self._by_ticker.get(ticker))

    def over_events(self) -> list[tuple[int, Shard]]:
        """Streams of texts that read the events of triggers, in the order of their numbers."""
        return [(number, self.shards[number]) for number in sorted(self._events)]

    def shard_of(self, trigger_id: str) -> Shard | None:
        """The stream of a trigger; None if it does not run here."""
        number = self._shard_of.get(trigger_id)
        return None if number is None else self.shards[number]

    def concerned(self, tickers: Collection[str]) -> Iterable[tuple[int, Shard]]:
        """The streams of these tickers in the order of their numbers, except for any that are forgotten during the
        iteration.
        """
        found = set(self._every)
        if len(tickers) < len(self._by_ticker):
            for ticker in tickers:
                found |= self._by_ticker.get(ticker, set())
        else:
            found |= self.shards.keys()
        for number in sorted(found):
            if (shard := self.shards.get(number)) is not None:
                yield number, shard

    def forget_period(self, period: int) -> None:
        """Forget the state that triggers over every period hold for a period that is no longer in use."""
        self.views.forget(period)
        for shard in self.shards.values():
            shard.forget(period)
        for trigger in self.triggers.values():
            for times in (trigger.fired, trigger.silent):
                for place in [place for place in times if place.startswith(f"{period}/")]:
                    del times[place]
                    self.lived(trigger)

    # ---- registrations
    def control(
        self,
        control: records.TriggerControl,
        firsts: tuple[int, int, int],
        now_ns: int,
        *,
        output: TriggerOutput,
    ) -> None:
        """Apply a control. `firsts`: the numbers of the next trade, bar and event, which are the first that a new
        trigger sees.
        """
        match control.WhichOneof("body"):
            case "register":
                self._register(control.register, firsts, now_ns, output)
            case "remove" if control.remove.trigger_id in self.triggers:
                trigger = self.triggers[control.remove.trigger_id]
                self._remove(trigger, output)
                output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "removed"))

    def _register(
        self,
        registration: records.TriggerRegistration,
        firsts: tuple[int, int, int],
        now_ns: int,
        output: TriggerOutput,
    ) -> None:
        known = self.triggers.get(registration.trigger_id)
        if known is not None:
            if known.version >= registration.version:
                return
            self._remove(known, output)
        tickers = self._tickers_here(registration.tickers)
        if tickers is None:
            return
        ticks_from, bars_from, events_from = firsts
        trigger = Trigger.of(
            registration, tickers, ticks_from, bars_from=bars_from, now_ns=now_ns, events_from=events_from
        )
        try:
            common = self._plans.of(trigger.text, is_alone=not trigger.tickers)
        except TriggerRejected as error:
            if not self._is_joint:
                self._add(trigger)
                self.suspend(trigger, str(error), output)
            return
        compiled = common.compiled
        if is_joint(compiled, registration.tickers, self.rules.partitions) != self._is_joint:
            return
        self._add(trigger)
        self._attach(trigger, common)
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "active"))
        if compiled.looks_back and trigger.tickers:
            options = compiled.options
            since_ns = trigger.registered_ns - options.lookback_ns
            output.lookbacks.append(
                LookbackRequest(
                    trigger.trigger_id, compiled.is_on_bars, options.period_seconds, trigger.tickers, since_ns
                )
            )

    def _add(self, trigger: Trigger) -> None:
        self.version += 1
        trigger.place = self._next_place
        self._next_place += 1
        self.triggers[trigger.trigger_id] = trigger
        self._changed.add(trigger.trigger_id)

    def _remove(self, trigger: Trigger, output: TriggerOutput) -> None:
        self.version += 1
        self._changed.add(trigger.trigger_id)
        self._detach(trigger)
        if "udf" in trigger.parameters:
            output.functions.append(records.FunctionRows(trigger_id=trigger.trigger_id, version=trigger.version))
        output.withdraw(trigger.trigger_id)
        del self.triggers[trigger.trigger_id]

    @property
    def _is_joint(self) -> bool:
        return 0 < self.rules.partitions == self.number

    def _tickers_here(self, tickers: Sequence[str]) -> Sequence[str] | None:
        """The tickers of a registration in this partition; None if it does not concern this partition."""
        count = self.rules.partitions
        if count <= 1:
            return None if self._is_joint else tickers
        if not tickers:
            return tickers
        places = {ticker: partition_of(ticker.encode(), count) for ticker in tickers}
        if self._is_joint:
            return tickers if len(set(places.values())) > 1 else None
        return [ticker for ticker, place in places.items() if place == self.number] or None

    def suspend(self, trigger: Trigger, reason: str, output: TriggerOutput) -> None:
        """Stop a trigger, which stays registered with the reason."""
        self._detach(trigger)
        trigger.reason = reason
        self.lived(trigger)
        output.reports.append(TriggerReport(trigger.trigger_id, trigger.version, "suspended", reason))

    # ---- streams
    def _attach(self, trigger: Trigger, common: Common) -> None:
        compiled = common.compiled
        is_alone = compiled.runs_alone or not trigger.tickers
        for known in sorted(self._by_key.get(common.key, ())):
            if self.shards[known].take_alike(trigger, common.numbers):
                self._shard_of[trigger.trigger_id] = known
                return
        if not is_alone:
            taken = set[int]().union(*(self._by_ticker.get(ticker, set()) for ticker in trigger.tickers))
            free = sorted(self._by_key.get(common.key, set()) - taken)
            number = next((number for number in free if self.shards[number].can_take(trigger)), None)
            if number is not None:
                self.shards[number].add(trigger, common.numbers)
                self._shard_of[trigger.trigger_id] = number
                self._index(number, trigger.tickers)
                return
        view = self.views.of(common, trigger.tickers, trigger.first_row(compiled))
        sole = trigger.trigger_id if is_alone else ""
        shard = Shard(common.prepared(), common.key, trigger.text, sole=sole, view=view)
        shard.add(trigger, common.numbers)
        self.keep(shard)

    def _detach(self, trigger: Trigger) -> None:
        number = self._shard_of.pop(trigger.trigger_id, None)
        if number is None:
            return
        self.version += 1
        shard = self.shards[number]
        if shard.drop(trigger):
            return
        if shard.sole or not shard.owners:
            self.forget(number)
        for ticker in trigger.tickers:
            self._by_ticker.get(ticker, set()).discard(number)

    def keep(self, shard: Shard) -> int:
        """Add a stream; returns its number."""
        self.version += 1
        number = self.next_shard
        self.next_shard += 1
        self.shards[number] = shard
        self._by_key.setdefault(shard.key, set()).add(number)
        for trigger_id in shard.trigger_ids:
            self._shard_of[trigger_id] = number
        if shard.compiled.reads_events:
            self._events.add(number)
        if shard.compiled.is_on_events:
            return number
        if shard.takes_every_ticker:
            self._every.add(number)
        self._index(number, shard.owners)
        return number

    def _index(self, number: int, tickers: Sequence[str] | Mapping[str, str]) -> None:
        for ticker in tickers:
            self._by_ticker.setdefault(ticker, set()).add(number)

    def forget(self, number: int) -> None:
        self.version += 1
        shard = self.shards.pop(number)
        self._every.discard(number)
        self._events.discard(number)
        numbers = self._by_key[shard.key]
        numbers.discard(number)
        if not numbers:
            del self._by_key[shard.key]
        for ticker in shard.owners:
            self._by_ticker.get(ticker, set()).discard(number)

    # ---- views
    def settle_views(self) -> None:
        """After a change of the streams: forget views that none of them reads."""
        self.views.settle(self.shards.values(), self.version)

    def unite(self, first_held: int | None) -> None:
        """See `Views.unite`. Streams that read the same view from now on, and keep nothing themselves, become one."""
        if not self.views.unite(self.shards.values(), first_held):
            return
        homes: dict[str, list[tuple[int, Shard]]] = {}
        for number, shard in sorted(self.shards.items()):
            known = homes.setdefault(shard.key, [])
            home, into = next(((place, own) for place, own in known if own.can_join(shard)), (number, shard))
            if into is shard:
                known.append((number, shard))
                continue
            self.forget(number)
            into.join(shard)
            self._index(home, shard.owners)
            self._shard_of |= dict.fromkeys(shard.trigger_ids, home)

    def overlooked(self, moved: Moved, done: Collection[int]) -> Iterator[tuple[int, Shard]]:
        """The streams for which a view has rows although none of their tickers has moved. `done`: were fed."""
        found = self.views.overlooked(moved)
        for number, shard in list(self.shards.items()) if found else ():
            if number in done:
                continue
            chain = shard.view.chain if shard.view is not None else ()
            others = set[str]().union(*(found.get(view.number, ()) for view in chain))
            if not others.isdisjoint(shard.owners) and moved.tickers.isdisjoint(shard.owners):
                yield number, shard

    def part(self, shard: Shard, error: Exception | None = None) -> bool:
        """Let a stream compute its view alone; false if it does already. After an error of the view, as before it."""
        view = shard.view
        if view is None or (error is not None and not view.failed(error)):
            return False
        chains = [other.view.chain for other in self.shards.values() if other.view is not None and other is not shard]
        is_shared = any(not {*chain}.isdisjoint(view.chain) for chain in chains)
        has_others = bool(shard.owners) and any(part.firsts.keys() - shard.owners.keys() for part in view.chain)
        if not is_shared and not has_others:
            return False
        shard.read(view.copied(shard.owners, error))
        self.version += 1
        return True

    def part_alike(self, shard: Shard) -> None:
        """Let the triggers of a stream that are alike run separately from now on."""
        for own in shard.part_alike():
            self.keep(own)

    # ---- state
    def lived(self, trigger: Trigger) -> None:
        """Note that something has happened to a trigger: an event, a silence or its suspension."""
        self._lived.add(trigger.trigger_id)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """The ids that were registered or removed since the last call, and those noted by `lived`."""
        found = self._changed, self._lived
        self._changed, self._lived = set(), set()
        return found

    def put(self, triggers: Iterable[Trigger]) -> None:
        """Put the triggers of a state here, before `restore`."""
        found = sorted(triggers, key=lambda trigger: trigger.place)
        self.triggers = {trigger.trigger_id: trigger for trigger in found}
        self._next_place = found[-1].place + 1 if found else 0
        self._changed = set(self.triggers)

    def restore(self, saved: Iterable[tuple[int, Saved]]) -> list[TriggerReport]:
        """Restore the streams of `triggers`, which must be set. Returns the triggers that can no longer run, which are
        suspended.
        """
        reports = []
        for number, own in saved:
            self.next_shard = number
            try:
                # States of older versions have no views: their triggers compute them for themselves.
                view = None if own.view is None else self.views.get(own.view)
                common_of = partial(self._common_of, is_alone=bool(own.sole), shares_views=view is not None)
                self.keep(
                    Shard.load(
                        self._common(own.text, is_alone=bool(own.sole), shares_views=view is not None),
                        own,
                        common_of,
                        view=view,
                    )
                )
            except (TriggerRejected, ValueError) as error:
                for trigger_id in own.trigger_ids:
                    trigger = self.triggers[trigger_id]
                    trigger.reason = str(error)
                    self.lived(trigger)
                    reports.append(TriggerReport(trigger_id, trigger.version, "suspended", trigger.reason))
        self._needs = None
        self.settle_views()
        return sorted(reports, key=lambda report: report.trigger_id)

    def restore_views(self, parts: Mapping[int, dict[str, bytes]], saved: Iterable[tuple[int, Saved]]) -> None:
        """Restore the views that the streams in `saved` read."""
        self.views.restore(parts, partial(self._common, is_alone=True), ((own.view, own.text) for _, own in saved))

    def _common(self, text: Text, *, is_alone: bool, shares_views: bool | None = None) -> Common:
        sql, parameters, views = text
        compiled = compile_trigger(sql, dict(parameters), self.rules, views=dict(views), is_checked=True)
        return Common.of(compiled, text, is_alone=is_alone, shares_views=shares_views)

    def _common_of(self, trigger_id: str, *, is_alone: bool, shares_views: bool) -> Common:
        return self._common(self.triggers[trigger_id].text, is_alone=is_alone, shares_views=shares_views)
