"""Texts that differ only in numbers: planned once, each as if it had been planned alone."""

import random
import re
from typing import Any

import pytest

from candlewright_cep import TriggerRejected
from candlewright_cep.syntax.tokens import split_at_numbers
from tests.rounds import seeds
from tests.triggers import guide
from tests.triggers.trigger_records import TICKER, register
from triggers.partition import TriggerPartition
from triggers.running import plans
from triggers.running.plans import Plans
from triggers.running.trigger import Common, Text
from triggers.texts.check import TriggerRules, compile_trigger

_PATTERN = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts_ns MEASURES %s PATTERN (%s) DEFINE %s)"
#: Texts in which numbers are values of slots, decide the plan, or both.
TEXTS = (
    "price > 70000 AND size >= :least",
    "price > -5.25 AND price < 100 AND size <> 0",
    "price BETWEEN 10 AND 20 OR price IN (30, 40)",
    "price * 1.05 > 100 + 2 * 3 AND size > - 2",
    "price > 5 AND price > 5 /* 7 */ AND size / 5 > 1e3 -- 9",
    "CAST(price AS DECIMAL(12, 2)) > 9.50 AND CAST(size AS DECIMAL(9, 3)) * 1.10 <= 3.3",
    "ROUND(price, 2) > :level AND POWER(size, 2) < :level AND side = '7'",
    "ts_ns > 1700000000000000000 AND trade_id = :text AND CASE WHEN price > 3 THEN 1 ELSE 0 END = 1",
    "price > 70.5 AND LAG(price, 3) OVER (PARTITION BY ticker ORDER BY ts) < 60.5",
    "SELECT price / 5 AS p, COUNT(*) AS n FROM ticks GROUP BY TUMBLE(ts, INTERVAL '60' SECOND), price / 5 "
    "HAVING COUNT(*) > 12",
    "SELECT ticker, price > 12 FROM ticks WHERE price % 3 = 1 AND EMA(price, 20) OVER (PARTITION BY ticker "
    "ORDER BY ts) > 9",
    _PATTERN % ("LAST(price) * 2 AS p", "A B{2,3} C",
                "B AS price < PREV(price, 2) - 0.000123, C AS price > A.price * 1.05"),
    _PATTERN % ("FIRST(price) AS p", "A+ B",
                "A AS price > 105.25, B AS SUM(A.size) > 40 AND price < 0.99 * LAST(A.price)"),
)  # fmt: skip
RULES = TriggerRules()


def common_of(text: Text) -> Common:
    compiled = compile_trigger(text[0], dict(text[1]), RULES, views=dict(text[2]))
    return Common.of(compiled, text, is_alone=compiled.runs_alone)


def shown(common: Common) -> dict[str, Any]:
    compiled, lifted = common.compiled, common.lifted
    return {
        "key": common.key,
        "numbers": repr(common.numbers),
        "views": common.views,
        "text": common.text,
        "slots": None if lifted is None else (lifted.types, repr(lifted.values), lifted.key),
        "columns": (compiled.columns, compiled.query.columns),
        "options": compiled.options,
        "is": (compiled.is_stateless, compiled.numbers_hold, compiled.looks_back, compiled.runs_alone),
        "reads": (compiled.labels, compiled.sources, compiled.periods),
    }


def changed(number: str, chance: random.Random) -> str:
    """Another number, as a rule of the same form, often one that makes a difference."""
    kind = chance.random()
    if kind < 0.3:
        return number
    if kind < 0.35:
        return chance.choice(["0", "1", "0.0", "2", "2147483648", "1e3", "5", "3.50"])
    return re.sub(r"\d", lambda _: str(chance.randrange(10)), number)


def outcome_of(plan: Any, text: Text) -> Any:
    try:
        return shown(plan(text))
    except TriggerRejected as error:
        return str(error), error.line, error.column


@pytest.mark.parametrize("seed", seeds(3))
def test_a_text_is_planned_as_if_it_were_the_only_one(seed: int) -> None:
    chance = random.Random(seed)
    own = Plans(RULES)
    given = [(sql, {"least": "0.5", "level": "12", "text": "77"}) for sql in TEXTS]
    given += [(text.sql, dict(text.parameters)) for text in guide.texts()]
    for _ in range(6):
        for sql, parameters in given:
            between, numbers = split_at_numbers(sql)
            written = "".join(
                part
                for pair in zip(between, [*(changed(n, chance) for n in numbers), ""], strict=True)
                for part in pair
            )
            values = {
                name: changed(value, chance) if value.replace(".", "").isdigit() else value
                for name, value in parameters.items()
            }
            text = written, tuple(sorted(values.items())), ()
            assert outcome_of(lambda text: own.of(text, is_alone=False), text) == outcome_of(common_of, text)


def test_only_the_first_texts_of_a_shape_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counted(sql: str, *given: Any, **named: Any) -> Any:
        compiled.append(sql)
        return compile_trigger(sql, *given, **named)

    monkeypatch.setattr(plans, "compile_trigger", counted)
    partition = TriggerPartition()
    controls = [
        register(f"t{number}", f"price > {2000 + number}.5 AND size >= :least", f"{number}{TICKER}", least="2.5")
        for number in range(100)
    ]
    partition.process([], controls=controls)
    assert [trigger.is_active for trigger in partition.triggers.values()] == [True] * 100
    assert partition.shards == 1
    assert len(compiled) == 4  # Two texts, and one for each number.


def test_a_number_that_is_not_a_value_is_not_replaced() -> None:
    own = Plans(RULES)
    texts = [f"EMA(price, {n}) OVER (PARTITION BY ticker ORDER BY ts) > {n * 7}" for n in (20, 30, 40, 20, 30, 40) * 3]
    keys = [own.of((text, (), ()), is_alone=False).key for text in texts]
    assert keys == [common_of((text, (), ())).key for text in texts]
    assert len(set(keys)) == 3
