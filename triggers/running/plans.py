"""Compiles texts that differ only in numbers once: 10,000 alerts usually have a dozen shapes.

When the second text of a shape comes, each of its numbers is changed in turn and the text is compiled again. If only
slots differ (see `candlewright_cep.streaming.slots`), the number is nothing but their value. In further texts such
numbers are replaced without compiling anything; all others must be equal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import TypeAlias

from candlewright_cep import TriggerRejected
from candlewright_cep.streaming.slots import Number
from candlewright_cep.syntax.tokens import split_at_numbers
from triggers.running.trigger import Common, Text
from triggers.texts.check import TriggerRules, compile_trigger

__all__ = ["Plans"]

#: Shapes with more numbers are compiled text by text.
_MOST_NUMBERS = 16
#: Above this many shapes, all are forgotten.
_MOST_SHAPES = 4_096
#: Other numbers belong to the shape: an exponent or many digits may decide a type.
_PLAIN = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]*)?|\.[0-9]+)")
_Shape: TypeAlias = tuple[object, ...]


class Plans:
    """What triggers have in common with others, by their texts."""

    def __init__(self, rules: TriggerRules) -> None:
        self._rules = rules
        # By shape, the places of the numbers that are not only values of slots; None for a shape that has no slots.
        self._fixed: dict[_Shape, frozenset[int] | None] = {}
        self._seen: set[_Shape] = set()
        self._plans: dict[_Shape, _Plan] = {}

    def of(self, text: Text, *, is_alone: bool) -> Common:
        """`is_alone`: the trigger names no tickers. Raises TriggerRejected."""
        if is_alone:
            return self._compiled(text, is_alone=True)
        written = _Written.of(text)
        fixed = self._fixed.get(written.shape, frozenset())
        if fixed is None or len(written.numbers) > _MOST_NUMBERS:
            return self._compiled(text)
        plan = self._plans.get(written.key(fixed))
        if plan is not None:
            return plan.common(text, written.numbers)
        common = self._compiled(text)
        self._learn(written, fixed, common)
        return common

    def _compiled(self, text: Text, *, is_alone: bool = False) -> Common:
        sql, parameters, views = text
        compiled = compile_trigger(sql, dict(parameters), self._rules, views=dict(views))
        return Common.of(compiled, text, is_alone=is_alone or compiled.runs_alone)

    def _learn(self, written: "_Written", fixed: frozenset[int], common: Common) -> None:
        if len(self._seen) + len(self._fixed) + len(self._plans) > _MOST_SHAPES:
            self._seen.clear()
            self._fixed.clear()
            self._plans.clear()
        if common.lifted is None:
            self._fixed[written.shape] = None
            return
        key = written.key(fixed)
        if key not in self._seen:
            self._seen.add(key)
            return
        slots: dict[int, _Slot] = {}
        for place in range(len(written.numbers)):
            if place not in fixed:
                slots |= self._slots_of(place, written, common)
        free = {slot.place for slot in slots.values()}
        fixed = self._fixed[written.shape] = frozenset(range(len(written.numbers))) - free
        self._plans[written.key(fixed)] = _Plan(common, slots)

    def _slots_of(self, place: int, written: "_Written", common: Common) -> dict[int, "_Slot"]:
        """The slots that hold the number at `place`, by their numbers; empty if it has any other effect."""
        number = written.numbers[place]
        other = written.other(place)
        if other is None:
            return {}
        try:
            changed = self._compiled(written.text_with(place, other))
        except TriggerRejected:
            return {}
        is_alike = changed.lifted is not None and (changed.key, changed.views) == (common.key, common.views)
        if not is_alike or len(changed.numbers) != len(common.numbers):
            return {}
        found = {}
        for slot, (before, after) in enumerate(zip(common.numbers, changed.numbers, strict=True)):
            if repr(before) == repr(after):
                continue
            ways = [_Slot(place, is_double, sign) for is_double in (True, False) for sign in (1, -1)]
            way = next(
                (w for w in ways if (repr(w.of(number)), repr(w.of(other))) == (repr(before), repr(after))), None
            )
            if way is None:
                return {}
            found[slot] = way
        return found


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot that holds the number at `place` of a text."""

    place: int
    is_double: bool
    sign: int

    def of(self, number: str) -> Number:
        value = _value(number) * self.sign
        return float(value) if self.is_double else value


@dataclass(frozen=True, slots=True)
class _Plan:
    """`slots`: by number, those whose values differ from text to text; the others are as in `first`."""

    first: Common
    slots: Mapping[int, _Slot]

    def common(self, text: Text, numbers: Sequence[str]) -> Common:
        values = list(self.first.numbers)
        for place, slot in self.slots.items():
            values[place] = slot.of(numbers[slot.place])
        assert self.first.lifted is not None
        found = tuple(values)
        return replace(self.first, numbers=found, text=text, lifted=replace(self.first.lifted, values=found))


@dataclass(frozen=True, slots=True)
class _Written:
    """A text as the `numbers` in its SQL and its parameters, and its `shape`: everything else, with the form of each
    number. Which numbers are equal, 0 or 1 belongs to the shape too.
    """

    between: tuple[str, ...]
    parameters: tuple[tuple[str, str | None], ...]
    views: tuple[tuple[str, str], ...]
    numbers: tuple[str, ...]
    shape: _Shape

    @classmethod
    def of(cls, text: Text) -> "_Written":
        sql, given, views = text
        between, numbers = split_at_numbers(sql)
        parameters = tuple((name, None if _PLAIN.fullmatch(value) else value) for name, value in given)
        numbers += tuple(value for _, value in given if _PLAIN.fullmatch(value))
        shape = (between, parameters, views, tuple(map(_form, numbers)), _likeness(numbers))
        return cls(between, parameters, views, numbers, shape)

    def key(self, fixed: frozenset[int]) -> _Shape:
        return (self.shape, tuple((place, self.numbers[place]) for place in sorted(fixed)))

    def other(self, place: int) -> str | None:
        """Another number at this place for a text of the same shape; None if there is none."""
        number = self.numbers[place]
        for digit in "7539264810":
            changed = number[:-1] + digit if number[-1].isdigit() else number.replace(number[-2], digit)
            numbers = (*self.numbers[:place], changed, *self.numbers[place + 1 :])
            if changed != number and (_form(changed), _likeness(numbers)) == (_form(number), _likeness(self.numbers)):
                return changed
        return None

    def text_with(self, place: int, number: str) -> Text:
        numbers = (*self.numbers[:place], number, *self.numbers[place + 1 :])
        count = len(self.between) - 1
        sql = "".join(chain.from_iterable(zip_longest(self.between, numbers[:count], fillvalue="")))
        further = iter(numbers[count:])
        return sql, tuple((n, next(further) if value is None else value) for n, value in self.parameters), self.views


def _value(number: str) -> int | float:
    return int(number) if number.lstrip("+-").isdigit() else float(number)


def _form(number: str) -> object:
    """What decides the type of a number, and the places of what follows it in the text."""
    if _PLAIN.fullmatch(number) is None:
        return number
    whole, point, digits = number.partition(".")
    return len(whole), point, len(digits), not point and abs(int(whole)) < 2**31


def _likeness(numbers: Sequence[str]) -> tuple[int, ...]:
    """For each number, the place of the first that equals it, or a number below 0 for 0 and 1."""
    places: dict[int | float, int] = {0: -1, 1: -2}
    return tuple(places.setdefault(_value(number), place) for place, number in enumerate(numbers))
