# ruff: noqa: E501  (texts of SQL)
"""Random texts that compose windows, patterns, groups, joins, unions and views over random tables with NULLs, NaN,
equal times and times before 1970.

Rows of every query are distinct in some of its columns (`unique`), by which windows and patterns order them.
"""

import datetime as dt
import math
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema(
    [("u", pa.int64()), ("k", pa.string()), ("g", pa.int64()), ("b", pa.bool_()), ("d", pa.date32()), ("ts", _TIME), ("x", pa.float64())]
)  # fmt: skip
_TRADES = pa.schema([("ticker", pa.string()), ("trade_id", pa.string()), ("ts", _TIME), ("price", pa.float64()), ("size", pa.float64())])  # fmt: skip
_KINDS = {"int64": "int", "string": "text", "bool": "bool", "date32[day]": "date", "double": "number"}
_KEYS = ("text", "int", "bool", "date")


def tables(chance: Random) -> dict[str, pa.Table]:
    return {
        "t": _rows(chance, chance.choice([0, 25, 40, 40])),
        "o": _rows(chance, chance.choice([1, 6, 30])),
        "ticks": _trades(chance, chance.choice([0, 30, 60, 60])),
    }


def _times(chance: Random, count: int) -> list[dt.datetime]:
    time = chance.choice(
        [dt.datetime(1969, 12, 31, 23, 59, 30, tzinfo=dt.UTC), dt.datetime(2024, 1, 31, tzinfo=dt.UTC)]
    )
    found = []
    for _ in range(count):
        time += dt.timedelta(milliseconds=chance.choice([0, 0, 300, 1000, 7000, 61000]))
        found.append(time)
    return found


def _rows(chance: Random, count: int) -> pa.Table:
    values: dict[str, list[Any]] = {
        "k": ["a", "b", "c", "", None], "g": [1, 2, 3, None], "b": [True, False, None],
        "d": [dt.date(2024, 1, 1), dt.date(1969, 12, 31), None], "x": [None, 0.0, -0.0, math.nan, 1.0, 2.5, -3.25, 7.0, 100.0],
    }  # fmt: skip
    rows = [
        {"u": number, "ts": None if chance.random() < 0.05 else time}
        | {name: chance.choice(each) for name, each in values.items()}
        for number, time in enumerate(_times(chance, count))
    ]
    return pa.Table.from_pylist(rows, _SCHEMA)


def _trades(chance: Random, count: int) -> pa.Table:
    rows = [
        {
            "ticker": chance.choice(["a", "b", None]), "trade_id": str(number), "ts": time,
            "price": None if chance.random() < 0.1 else 100 + chance.randint(-8, 8) / 4, "size": float(chance.randint(1, 9)),
        }
        for number, time in enumerate(_times(chance, count))
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _TRADES)


@dataclass(frozen=True)
class _Query:
    """`text`: what FROM reads; `columns`: their kinds by name."""

    text: str
    columns: dict[str, str]
    unique: list[str]

    def of(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


def _by(keys: list[str]) -> str:
    return f"PARTITION BY {', '.join(keys)}" if keys else ""


class Texts:
    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._names = 0
        self._views: dict[str, _Query] = {}

    def text(self) -> str:
        found = self._query(self._chance.randint(1, 3))
        definitions = [f"{name} AS (SELECT * FROM {view.text})" for name, view in self._views.items()]
        return (
            f"{'WITH ' if definitions else ''}{', '.join(definitions)} SELECT * FROM {found.text}{self._where(found)}"
        )

    def _query(self, depth: int) -> _Query:
        if not depth:
            return self._table()
        shapes = (
            *[self._joined] * 4, *[self._windowed] * 3, *[self._matched] * 2, *[self._grouped] * 3, *[self._filtered] * 2, self._viewed,
            self._viewed, self._twice, self._twice, self._united, self._distinct, self._limited, self._in_windows, self._with_values,
            self._with_values, self._with_last, self._unnested, self._barred, self._ranked,
        )  # fmt: skip
        found = self._chance.choice(shapes)(depth - 1)
        return found or self._query(depth)

    def _table(self) -> _Query:
        if self._views and self._chance.random() < 0.4:
            name = self._chance.choice([*self._views])
            return _Query(name, self._views[name].columns, self._views[name].unique)
        name = self._chance.choice(["t", "t", "o", "ticks"])
        schema = _TRADES if name == "ticks" else _SCHEMA
        columns = {part.name: _KINDS.get(str(part.type), "time") for part in schema}
        return _Query(name, columns, ["trade_id" if name == "ticks" else "u"])

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

    def _named(self, query: _Query) -> _Query:
        """The query as a view, which several others may read."""
        if not query.text.startswith("("):
            return query
        name = self._name()
        self._views[name] = query
        return _Query(name, query.columns, query.unique)

    def _condition(self, query: _Query, table: str = "") -> str:
        parts = []
        for _ in range(self._chance.choice([1, 1, 1, 2])):
            name = self._chance.choice([*query.columns])
            forms = {
                "text": ["{} = 'a'", "{} IN ('a', 'b', '3')", "'a' = {}", "{} IS NULL", "{} <> 'a'", "{} = 'a' OR {} = 'b'", "{} >= 'b'"],
                "int": ["{} = 1", "{} IN (1, 2)", "{} BETWEEN 1 AND 20", "2 <= {}", "{} < 30", "{} > 1.5", "{} NOT IN (2)", "{} IN (1, NULL)"],
                "number": ["{} > 2", "{} = 0", "{} IS NULL"],
                "bool": ["{}", "NOT {}", "{} IS NULL"],
                "date": ["{} = DATE '2024-01-01'", "{} < DATE '2000-01-01'"],
                "time": ["{} >= TIMESTAMP '2024-01-31 00:00:40'", "{} < TIMESTAMP '1970-01-01 00:00:00'", "{} IS NOT NULL",
                         "{} BETWEEN TIMESTAMP '1969-12-31 23:59:40' AND TIMESTAMP '2024-01-31 00:02:00'"],
            }[query.columns[name]]  # fmt: skip
            parts.append(f"({self._chance.choice(forms).replace('{}', table + name)})")
        return f"({self._chance.choice([' AND ', ' OR ']).join(parts)})"

    def _where(self, query: _Query) -> str:
        return f" WHERE {self._condition(query)}" if self._chance.random() < 0.5 else ""

    def _keys(self, query: _Query) -> list[str]:
        keys = query.of(*_KEYS)
        return self._chance.sample(keys, min(len(keys), self._chance.choice([0, 1, 1, 1, 2])))

    def _window(self, query: _Query) -> str:
        return f"{_by(self._keys(query))} ORDER BY {', '.join(query.unique)}"

    def _chosen(self, query: _Query, table: str = "") -> tuple[list[str], dict[str, str], list[str]]:
        """Some columns under new names, with their kinds, and which of them are unique."""
        items, columns, unique = [], {}, []
        for name, kind in query.columns.items():
            if name in query.unique or self._chance.random() < 0.8:
                items.append(f"{table}{name} AS {(new := self._name())}")
                columns[new] = kind
                unique += [new] if name in query.unique else []
        return items, columns, unique

    # -- shapes: each reads a query; None if it cannot ----------------------------------------------------------------

    def _filtered(self, depth: int) -> _Query:
        query = self._query(depth)
        items, columns, unique = self._chosen(query)
        return _Query(f"(SELECT {', '.join(items)} FROM {query.text} WHERE {self._condition(query)})", columns, unique)

    def _windowed(self, depth: int) -> _Query | None:
        query, name = self._query(depth), self._name()
        if not query.of("number", "int"):
            return None
        x = self._chance.choice(query.of("number", "int"))
        function, kind = self._chance.choice(
            [(f"EMA({x}, 3)", "number"), ("ROW_NUMBER()", "int"), (f"LAG({x})", query.columns[x]), (f"MAX({x})", query.columns[x])]
        )  # fmt: skip
        text = f"(SELECT *, {function} OVER ({self._window(query)}) AS {name} FROM {query.text}{self._where(query)})"
        return _Query(text, {**query.columns, name: kind}, query.unique)

    def _ranked(self, depth: int) -> _Query:
        query = self._query(depth)
        rank = f"ROW_NUMBER() OVER ({self._window(query)}) <= {self._chance.randint(1, 3)}"
        return _Query(f"(SELECT * FROM {query.text} QUALIFY {rank})", query.columns, query.unique)

    def _matched(self, depth: int) -> _Query | None:
        query, name, number = self._query(depth), self._name(), self._name()
        if not query.of("number", "int"):
            return None
        x, keys = self._chance.choice(query.of("number", "int")), self._keys(query)
        all_rows = self._chance.random() < 0.4
        columns = dict(query.columns) if all_rows else {key: query.columns[key] for key in keys}
        text = (
            f"(SELECT {', '.join([*columns, name])} FROM {query.text} MATCH_RECOGNIZE ({_by(keys)} "
            f"ORDER BY {', '.join(query.unique)} MEASURES MATCH_NUMBER() AS {name} {'ALL ROWS PER MATCH WITH UNMATCHED ROWS ' if all_rows else ''}"
            f"PATTERN (A B+) DEFINE B AS {x} > PREV({x})) AS {number})"
        )
        return _Query(text, {**columns, name: "int"}, query.unique if all_rows else [*keys, name])

    def _grouped(self, depth: int) -> _Query:
        query, count, top = self._query(depth), self._name(), self._name()
        keys = self._keys(query)
        columns = {key: query.columns[key] for key in keys} | {count: "int"}
        items = [*keys, f"COUNT(*) AS {count}"]
        for x in query.of("number", "int")[:1]:
            items.append(f"MAX({x}) AS {top}")
            columns[top] = query.columns[x]
        by = ", ".join(keys)
        if keys and self._chance.random() < 0.3:
            by, number = f"{self._chance.choice(['ROLLUP', 'CUBE'])} ({by})", self._name()
            items.append(f"GROUPING({keys[0]}) AS {number}")
            columns[number] = "int"
        having = self._chance.choice(["", "", " HAVING COUNT(*) > 1", f" HAVING {keys[0]} IS NOT NULL" if keys else ""])
        text = f"(SELECT {', '.join(items)} FROM {query.text}{self._where(query)}{f' GROUP BY {by}' if by else ''}{having})"
        return _Query(text, columns, [*columns])

    def _distinct(self, depth: int) -> _Query:
        query = self._query(depth)
        names = self._chance.sample([*query.columns], min(2, len(query.columns)))
        return _Query(
            f"(SELECT DISTINCT {', '.join(names)} FROM {query.text})",
            {name: query.columns[name] for name in names},
            names,
        )

    def _limited(self, depth: int) -> _Query:
        query = self._query(depth)
        text = f"(SELECT * FROM {query.text} ORDER BY {', '.join(query.unique)} LIMIT {self._chance.randint(1, 20)})"
        return _Query(text, query.columns, query.unique)

    def _united(self, depth: int) -> _Query | None:
        one, other = self._query(depth), self._query(depth)
        pairs = [(a, b) for a in one.columns for b in other.columns if one.columns[a] == other.columns[b]]
        if not pairs:
            return None
        pairs = self._chance.sample(pairs, min(2, len(pairs)))
        names = [self._name() for _ in pairs]
        first = ", ".join(f"{a} AS {name}" for (a, _), name in zip(pairs, names, strict=True))
        text = f"(SELECT {first} FROM {one.text} UNION SELECT {', '.join(b for _, b in pairs)} FROM {other.text})"
        return _Query(text, {name: one.columns[a] for (a, _), name in zip(pairs, names, strict=True)}, names)

    def _viewed(self, depth: int) -> _Query:
        return self._named(self._query(depth))

    def _twice(self, depth: int) -> _Query | None:
        query = self._named(self._query(depth))
        return self._join(query, query)

    def _joined(self, depth: int) -> _Query | None:
        return self._join(self._query(depth), self._query(self._chance.choice([0, depth])))

    def _join(self, one: _Query, other: _Query) -> _Query | None:
        pairs = [(a, b) for a in one.of(*_KEYS, "time") for b in other.columns if one.columns[a] == other.columns[b]]
        if not pairs:
            return None
        same = [pair for pair in pairs if pair[0] == pair[1]] or pairs
        keys = [self._chance.choice(same), *self._chance.sample(pairs, self._chance.randint(0, 1))]
        left, right = f"{self._name()}", f"{self._name()}"
        parts = [f"{left}.{a} = {right}.{b}" for a, b in keys]
        if self._chance.random() < 0.4:
            parts.append(self._condition(*self._chance.choice([(one, f"{left}."), (other, f"{right}.")])))
        kind = self._chance.choice(["", "LEFT", "RIGHT", "FULL"])
        return self._beside(
            one,
            left,
            other,
            right,
            source=f"{one.text} AS {left} {kind} JOIN {other.text} AS {right} ON {' AND '.join(parts)}",
        )

    def _with_values(self, depth: int) -> _Query | None:
        query = self._query(depth)
        if not query.of("text"):
            return None
        left, right = self._name(), self._name()
        rows = f"(VALUES ('a', 1), ('b', 2), (NULL, 3)) AS {right}(v, w)"
        kind = self._chance.choice(["", "LEFT", "RIGHT", "FULL"])
        sides = [f"{query.text} AS {left}", rows]
        self._chance.shuffle(sides)
        source = f"{sides[0]} {kind} JOIN {sides[1]} ON {left}.{query.of('text')[0]} = {right}.v"
        return self._beside(query, left, _Query("", {"v": "text", "w": "int"}, ["v", "w"]), right, source=source)

    def _with_last(self, depth: int) -> _Query | None:
        """ASOF JOIN; one right row for each key and time."""
        one, other = self._query(depth), self._query(self._chance.choice([0, depth]))
        pairs = [(a, b) for a in one.of(*_KEYS) for b in other.columns if one.columns[a] == other.columns[b]]
        if not (pairs and one.of("time") and other.of("time")):
            return None
        (a, b), time = self._chance.choice(pairs), other.of("time")[0]
        left, right, count = self._name(), self._name(), self._name()
        rows = f"(SELECT {b}, {time}, COUNT(*) AS {count} FROM {other.text} GROUP BY {b}, {time})"
        source = (
            f"{one.text} AS {left} ASOF {self._chance.choice(['', 'LEFT'])} JOIN {rows} AS {right} "
            f"ON {left}.{a} = {right}.{b} AND {left}.{one.of('time')[0]} >= {right}.{time}"
        )
        return self._beside(
            one, left, _Query("", {b: other.columns[b], time: "time", count: "int"}, []), right, source=source
        )

    def _beside(self, one: _Query, left: str, other: _Query, right: str, *, source: str) -> _Query:
        items, columns, unique = self._chosen(one, f"{left}.")
        further, others, rest = self._chosen(other, f"{right}.")
        where = ""
        if self._chance.random() < 0.4:
            where = f" WHERE {self._condition(*self._chance.choice([(one, f'{left}.'), (other, f'{right}.')]))}"
        return _Query(f"(SELECT {', '.join(items + further)} FROM {source}{where})", columns | others, unique + rest)

    def _in_windows(self, depth: int) -> _Query | None:
        query = self._named(self._query(depth))
        if not query.of("time") or "window_start" in query.columns:
            return None
        keys, time = self._keys(query), query.of("time")[0]
        table = self._chance.choice(
            [f"SESSION(TABLE {query.text} {_by(keys[:1])}, DESCRIPTOR({time}), INTERVAL '30' SECOND)",
             f"HOP(TABLE {query.text}, DESCRIPTOR({time}), INTERVAL '30' SECOND, INTERVAL '1' MINUTE)"]
        )  # fmt: skip
        found = _Query("", {**query.columns, "window_start": "time"}, [*query.unique, "window_start"])
        return _Query(
            f"(SELECT {', '.join(found.columns)} FROM TABLE({table}){self._where(found)})", found.columns, found.unique
        )

    def _unnested(self, depth: int) -> _Query:
        query, name, alias = self._query(depth), self._name(), self._name()
        text = f"(SELECT {', '.join([*query.columns, name])} FROM {query.text} CROSS JOIN UNNEST (ARRAY[1, 2]) AS {alias}({name}))"
        return _Query(text, {**query.columns, name: "int"}, [*query.unique, name])

    def _barred(self, depth: int) -> _Query:
        columns = {
            "ticker": "text",
            "open_time": "time",
            "close_time": "time",
            "close": "number",
            "volume": "number",
            "trade_count": "int",
        }
        found = _Query("", columns, [*columns])
        return _Query(
            f"(SELECT {', '.join(columns)} FROM ticks BARS BY TRADES 3{self._where(found)})", columns, found.unique
        )
