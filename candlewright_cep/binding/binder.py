"""From syntax to typed expressions: resolves names, types and parameters, and checks functions against the
allow-list.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.binding.dialects import (
    ALIASES,
    COLUMNS,
    ELSEWHERE,
    LIKELY_COLUMNS,
    NOW,
    OF_PATTERNS,
    PREVIOUS,
    WITH_LENGTH,
)
from candlewright_cep.binding.evaluation import RowValues
from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression
from candlewright_cep.binding.neighbours import (
    COMPARING,
    EXACT,
    adapted_arguments,
    adapted_constant,
    by_parts,
    conversion_hint,
    exact_literals,
    moves_by_days,
    quoted_number,
)
from candlewright_cep.binding.recovery import recovering
from candlewright_cep.binding.rewriting import rewritten
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES, written
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars import calendars, fields, zones
from candlewright_cep.functions.scalars.scalar import FUNCTIONS, cast
from candlewright_cep.functions.scalars.text import like_expression, named_group, read, replacement_form
from candlewright_cep.functions.scalars.time import UNIT_FUNCTIONS, field_name
from candlewright_cep.functions.scalars.time_format import time_format
from candlewright_cep.functions.signatures import Mismatch, fits
from candlewright_cep.limits import Limits
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import (
    CallNode,
    Identifier,
    LiteralNode,
    ModeNode,
    NameNode,
    Node,
    OverNode,
    ParameterNode,
    StarNode,
)
from candlewright_cep.times import CALENDAR_UNITS, UNITS, literal_interval, unit_name
from candlewright_cep.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    STRING,
    Kind,
    SqlType,
    is_array,
)
from candlewright_cep.vector import Vector, constant, nulls

Parameters = Mapping[str, str]

#: Below this similarity, PCT_CHANGE would suggest TRUE_RANGE, and HIGHEST would suggest RIGHT.
_NEAR_FUNCTION = 0.72
#: Names this short resemble many words.
_ABBREVIATION = 2
#: Argument types as errors name them.
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a relation. `hidden` columns answer to their name but are not part of `*`. `values`: the texts that
    the column of an input can hold, if only these.
    """

    name: str
    type: SqlType
    qualifier: str = ""
    hidden: bool = False
    values: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # Half of what the hash of all parts costs: fields are looked up for every text.
        return hash((self.name, self.qualifier, self.type.kind))


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """A "did you mean" sentence, or nothing. A name of two letters is an abbreviation, not a typo of a longer one."""
    if len(name) <= _ABBREVIATION:
        return ""
    by_folded = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower()[:100], by_folded, n=1, cutoff=cutoff)
    return f"did you mean '{by_folded[found[0]]}'?" if found else ""


def lookup(fields: Sequence[Field], name: Identifier, qualifier: Identifier | None) -> int | None:
    """The index of the column, or None if no column has this name. Raises TriggerRejected if the name is ambiguous."""
    wanted, table = name.text.lower(), None if qualifier is None else qualifier.text.lower()
    candidates = [
        index
        for index, field in enumerate(fields)
        if field.name.lower() == wanted and (table is None or field.qualifier.lower() == table)
    ]
    exact = [index for index in candidates if fields[index].name == name.text]
    if len(candidates) > 1 and len(exact) == 1 and name.quoted:
        return exact[0]
    if len(candidates) > 1:
        shown = [index for index in candidates if not fields[index].hidden]
        if len(shown) == 1:
            return shown[0]
        raise name.at.reject(f"the column '{name.text[:60]}' is ambiguous", "put the table's alias before it")
    return candidates[0] if candidates else None


def check_part(node: CallNode, name: str, arguments: Sequence[Expression]) -> None:
    """Raises TriggerRejected unless the percentile is a constant from 0 to 1."""
    if AGGREGATES[name].takes_part:
        part = arguments[-1]
        if not isinstance(part, Constant) or part.value is None or not 0 <= part.value <= 1:
            raise node.arguments[-1].at.reject(
                f"{name} takes a number from 0 to 1 as a literal or a parameter",
                form_of(name, []).replace("p)", "0.9)"),
            )


def not_single(at: Position, clause: str, kind: SqlType) -> TriggerRejected:
    """The error for a column that a clause cannot compare."""
    return at.reject(f"{clause} cannot use a column of type {str(kind)[:60]}", conversion_hint(clause, [kind]))


def form_of(aggregate: str, types: Sequence[SqlType]) -> str:
    """How to call an aggregate, as a hint for a call with arguments of these types."""
    if hint := conversion_hint(aggregate, types):
        return hint
    usage = AGGREGATES[written(aggregate)].usage
    return f"write {usage.signature}" if usage is not None else ""


class Binder:
    """Checks expressions over the columns `fields`. Subclasses add the other things that an expression may contain."""

    def __init__(self, fields: Sequence[Field], parameters: Parameters, limits: Limits) -> None:
        self.fields = fields
        self.parameters = parameters
        self.limits = limits
        #: The columns of the input of a row pattern, if `fields` are its output.
        self.behind: Sequence[Field] = ()
        #: What to write for the names that the SELECT gives to its results; WHERE cannot see them, HAVING not those of
        #: window functions.
        self.results: Mapping[str, str] = {}

    # -- entries --------------------------------------------------------------------------------------------------

    @recovering
    def condition(self, node: Node, what: str) -> Expression:
        """A boolean expression."""
        found = self.bind(node)
        if isinstance(found, Constant):
            found = self.converted(found, BOOLEAN, node.at)
        if found.type.kind is not Kind.BOOLEAN:
            raise node.at.reject(f"{what} must be a condition, but it has type {found.type}")
        return found

    @recovering
    def bind(self, node: Node) -> Expression:
        match node:
            case LiteralNode():
                text = node.value if node.type.kind is Kind.STRING else None
                return Constant(node.value, node.type, text)
            case ParameterNode():
                return self.parameter(node)
            case NameNode():
                return self.name(node) if (field := self.dotted(node)) is None else self.bind(field)
            case CallNode():
                return self.call(node)
            case ModeNode():
                raise node.at.reject(f"{node.mode} is possible only in MEASURES")
            case StarNode():
                raise node.at.reject("* is possible only in a select list and in COUNT(*)")
            case OverNode():
                return self.over(node)

    def over(self, node: OverNode) -> Expression:
        raise node.at.reject("a window function is not possible here")

    # -- names and parameters -------------------------------------------------------------------------------------

    def name(self, node: NameNode) -> Expression:
        qualifier = node.parts[0] if len(node.parts) > 1 else None
        index = lookup(self.fields, node.parts[-1], qualifier)
        if index is None:
            raise self.unknown_column(node)
        return Column(index, self.fields[index].type)

    def dotted(self, node: NameNode) -> CallNode | None:
        """`a.b` as the field b of a column a, if a is not a table."""
        if len(node.parts) == 1:
            return None
        first, field = node.parts
        is_table = any(known.qualifier.lower() == first.text.lower() for known in self.fields)
        if is_table or lookup(self.fields, first, None) is None:
            return None
        whole = NameNode((first,), first.at)
        key = LiteralNode(field.text, STRING, field.at)
        return CallNode(name=".", arguments=(whole, key), at=field.at, is_operator=True)

    def unknown_column(self, node: NameNode) -> TriggerRejected:
        name = node.parts[-1]
        if name.text.upper() in NOW:
            return name.at.reject(
                f"{name.text.upper()} is not supported", "triggers see only the data, compare its times"
            )
        if len(node.parts) > 1:
            qualifier = node.parts[0]
            known = {field.qualifier for field in self.fields if field.qualifier}
            if qualifier.text.lower() not in {other.lower() for other in known}:
                hint = closest(qualifier.text, known)
                if not hint and len(known) == 1:
                    hint = f"write {min(known)}.{name.text[:60]}"
                if self.behind:
                    written = f"{qualifier.text[:60]}.{name.text[:60]}"
                    hint = f"variables are known in MATCH_RECOGNIZE: write MEASURES {written} AS {name.text[:60]}"
                return qualifier.at.reject(f"unknown table '{qualifier.text[:60]}'", hint)
        if name.text.lower() in self.results:
            return name.at.reject(
                f"'{name.text[:60]}' is a result of this SELECT, not a column of its input",
                self.results[name.text.lower()],
            )
        if (earlier := self._earlier(node)) is not None:
            return name.at.reject(f"unknown column '{name.text[:60]}'", f"write {earlier}")
        hint = self._otherwise(name) or closest(name.text, (field.name for field in self.fields))
        if not hint and name.quoted:
            hint = "write texts in single quotes, names in double quotes"
        if not hint:
            shown = [field.name for field in self.fields if not field.hidden][:20]
            hint = f"the columns are {', '.join(dict.fromkeys(shown))}; write texts in single quotes" if shown else ""
        return name.at.reject(f"unknown column '{name.text[:60]}'", hint)

    def _otherwise(self, name: Identifier) -> str:
        """A hint for a name that is not a column: its other meaning, or the column's name here."""
        text, upper = name.text[:60], name.text.upper()
        known = {field.name.lower() for field in self.fields}
        if any(field.name.lower() == text.lower() for field in self.behind):
            return f"a column of the pattern's input: write MEASURES LAST({text}) AS {text}"
        if text.lower() in ("window_start", "window_end", "window_time"):
            return "GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) makes it"
        if any(text.lower() in field.values for field in self.fields):
            return f"write '{text.lower()}' in single quotes"
        if text.lower() in ("open", "high", "low") and known >= {"price", "size", "trade_id"}:
            return "a column of bars: give the parameter period_seconds, such as 60, or write a SELECT FROM ohlc"
        if (here := next((each for each in COLUMNS.get(text.lower(), ()) if each in known), None)) is not None:
            return f"did you mean '{here}'?"
        if name.quoted:
            return ""
        if (called := signature_of(upper)) is not None and upper not in LIKELY_COLUMNS:
            return f"{upper} is a function: write {'COUNT(*)' if upper == 'COUNT' else called}"
        length = WITH_LENGTH.fullmatch(upper)
        if length is not None and length[1] in INDICATORS:
            # Its arguments up to the length, which comes after the columns.
            columns = INDICATORS[length[1]].signature.partition("(")[2].partition("n")[0]
            columns = columns.replace("x", "close" if "close" in known else "price")
            return f"write {length[1]}({columns}{length[2]}) {self.window_form()}"
        return ""

    def window_form(self, frame: str = "") -> str:
        """OVER as an author writes it for these columns."""
        times = [field.name for field in self.fields if field.type.kind is Kind.TIMESTAMP]
        by_ticker = "PARTITION BY ticker " if any(field.name == "ticker" for field in self.fields) else ""
        return f"OVER ({by_ticker}ORDER BY {times[0] if times else '...'}{frame})"

    def _earlier(self, node: NameNode) -> str | None:
        """What to write instead of a name such as prev_price; None for other names."""
        found = PREVIOUS.fullmatch(node.parts[-1].text.lower())
        if found is None:
            return None
        column = found[1] or found[2]
        known = {field.name.lower(): field.name for field in self.fields}
        return self.before(known[column]) if column in known else None

    def before(self, column: str) -> str:
        """The value of a column in the previous row, as an author writes it here."""
        return f"LAG({column}) {self.window_form()}"

    def parameter(self, node: ParameterNode) -> Constant:
        text = self.parameters.get(node.name)
        if text is None:
            hint = closest(node.name, self.parameters) or f"add {node.name} to the parameters"
            raise node.at.reject(f"no value for the parameter :{node.name}", hint)
        if len(text) > self.limits.literal_characters:
            raise node.at.reject(
                f"the parameter :{node.name} has more than {self.limits.literal_characters} characters"
            )
        kind: SqlType = STRING
        for candidate in (BIGINT, DOUBLE):
            if text.strip() == text and re.match(r"[+-]?[.0-9]", text) and read(text, candidate) is not None:
                kind = candidate
                break
        else:
            if text.lower() in ("true", "false"):
                kind = BOOLEAN
        return Constant(read(text, kind), kind, text)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, node: CallNode) -> Expression:
        if node.filter is not None:
            raise node.filter.at.reject("FILTER is possible only after an aggregate of a SELECT")
        if node.mode:
            where = "in COUNT of a grouped SELECT" if node.mode == "DISTINCT" else "in MEASURES"
            raise node.at.reject(f"{node.mode} is possible only {where}")
        if node.name.startswith("INTERVAL "):
            return self.interval(node)
        if node.name in ("+", "-") and node.is_operator and (later := self._months_later(node)) is not None:
            return self.bind(later)
        if node.name in ("CAST", "TRY_CAST") and node.is_operator and node.type is not None:
            argument = node.arguments[0]
            if isinstance(argument, LiteralNode) and argument.digits and node.type.kind is Kind.DECIMAL:
                return self.cast(Constant(argument.digits, STRING, argument.digits), node.type, node.at)
            return self.cast(self.bind(argument), node.type, node.at)
        return self.scalar(node)

    def _months_later(self, node: CallNode) -> CallNode | None:
        """A time plus or minus months or years, which have no fixed length, as DATE_ADD; None for other operands."""
        for time, interval in ((0, 1), (1, 0)) if node.name == "+" else ((0, 1),):
            amount = node.arguments[interval]
            sign = -1 if node.name == "-" else 1
            if isinstance(amount, CallNode) and amount.name == "NEGATE" and isinstance(amount.arguments[0], CallNode):
                amount, sign = amount.arguments[0], -sign
            unit = amount.name.removeprefix("INTERVAL ") if isinstance(amount, CallNode) else ""
            if not isinstance(amount, CallNode) or unit not in CALENDAR_UNITS or amount.name == unit:
                continue
            written = amount.arguments[0]
            text = self.parameter(written).text if isinstance(written, ParameterNode) else self._word(written)
            count = read((text or "").strip(), BIGINT)
            if count is None or abs(count) > 1_000_000:
                raise amount.at.reject(f"'{(text or '')[:40]}' is not a whole number of {unit}s")
            moved = (LiteralNode(unit, STRING, amount.at), LiteralNode(sign * count, BIGINT, amount.at))
            return CallNode(name="DATE_ADD", arguments=(*moved, node.arguments[time]), at=node.at)
        return None

    def scalar(self, node: CallNode) -> Expression:
        """Bind a call of a scalar function."""
        other = rewritten(node)
        if other is not None:
            return self.bind(other)
        if node.name == ".":
            return self._named_field(node)
        name = ALIASES.get(node.name, node.name)
        if name not in FUNCTIONS:
            raise self.unknown_function(node)
        if name in UNIT_FUNCTIONS:
            return self._with_unit(node, name)
        if name in ("LIKE", "REGEXP_LIKE"):
            return self._with_pattern(node, name)
        if name in ("REGEXP_EXTRACT", "DATE_FORMAT"):
            return self._with_form(node, name)
        if name == "REGEXP_REPLACE":
            return self._with_replacement(node, name)
        if name == zones.NAME:
            return self._in_zone(node)
        if name in calendars.NAMES:
            return self._in_calendar(node, name)
        if name == "JSON_VALUE":
            return self._json_value(node)
        if name == "ROW":
            return self._row(node)
        if name == "ELEMENT_AT" and len(node.arguments) == 2 and (found := self._field(node)) is not None:
            return found
        if name == "IS NULL" and len(node.arguments) != 1:
            raise node.at.reject("IS NULL takes one value")
        return self.resolved(name, [self.bind(argument) for argument in node.arguments], node)

    def unknown_function(self, node: CallNode, among: Sequence[str] = ()) -> TriggerRejected:
        """`among`: the functions that are possible here, if not all."""
        if node.name in NOW:
            return node.at.reject(f"{node.name} is not supported", "triggers see only the data, compare its times")
        if node.name in ELSEWHERE:
            return node.at.reject(f"{node.name} is a function of another dialect", ELSEWHERE[node.name])
        if node.name in OF_PATTERNS:
            return node.at.reject(f"{node.name} is possible only in MATCH_RECOGNIZE", OF_PATTERNS[node.name])
        known = among or [name for name in (*FUNCTIONS, *ALIASES, *self.further_functions()) if name[0].isalpha()]
        return node.at.reject(
            f"unknown function '{node.name[:60]}'", closest(node.name, known, cutoff=0.6 if among else 0.72)
        )

    def further_functions(self) -> Sequence[str]:
        return ()

    def resolved(self, name: str, arguments: list[Expression], node: CallNode, *, extra: str = "") -> Expression:
        if (parts := by_parts(name, arguments)) is not None:
            symbol, pairs = parts
            compared = [self.resolved(each, list(pair), node) for each, pair in pairs]
            return compared[0] if len(compared) == 1 else self.resolved(symbol, compared, node)
        if name in EXACT:
            arguments = exact_literals(arguments, node.arguments)
        arguments = adapted_arguments(name, arguments, node.at)
        types = [argument.type for argument in arguments]
        try:
            if not arguments:
                raise Mismatch
            if name == "LOG" and len(arguments) > 2:
                raise Mismatch
            wanted, kind = FUNCTIONS[name].signature(types)
            if kind.kind is Kind.TIMESTAMP and moves_by_days(name, arguments, extra):
                kind = DATE
        except Mismatch:
            shown = ", ".join([*(str(kind)[:60] for kind in types[:_SHOWN]), *(["..."] if types[_SHOWN:] else [])])
            hint, usage = conversion_hint(name, types), FUNCTIONS[name].usage
            if name in COMPARING and (quoted := quoted_number(arguments, node)) is not None:
                raise quoted from None
            column = node.arguments[0] if name == "ELEMENT_AT" and node.arguments else None
            if isinstance(column, NameNode) and not is_array(types[0]):
                hint = f"an earlier row's value is {self.before(column.parts[-1].text)}"
            if node.is_operator:
                raise node.at.reject(f"{name} cannot be applied to {shown}", hint) from None
            if not hint and usage is not None:
                hint = f"write {usage.signature}"
            raise node.at.reject(f"{name} has no form for ({shown})", hint) from None
        converted = [
            self.converted(argument, target, node.at) for argument, target in zip(arguments, wanted, strict=True)
        ]
        return self.folded(Apply(name, tuple(converted), kind, extra))

    def folded(self, node: Apply) -> Expression:
        """Computes a constant subtree once, when the text is checked."""
        if not all(isinstance(argument, Constant) for argument in node.arguments):
            return node
        found = RowValues(_no_column, 1).value(node).to_list()[0]
        # A constant array must be hashable in Python too, because expressions are compared and looked up.
        return Constant(tuple(found) if isinstance(found, list) else found, node.type)

    def _in_zone(self, node: CallNode) -> Expression:
        name = self.zone_name(node.arguments[1])
        return self.resolved(zones.NAME, [self.bind(node.arguments[0])], node, extra=name)

    def _json_value(self, node: CallNode) -> Expression:
        path = self.bind(node.arguments[1]) if len(node.arguments) == 2 else None
        if not isinstance(path, Constant) or path.text is None or fields.path_of(path.text) is None:
            raise node.at.reject("JSON_VALUE takes a text and a path", "JSON_VALUE(body, '$.bids[0].price')")
        return self.resolved("JSON_VALUE", [self.bind(node.arguments[0])], node, extra=path.text)

    def _row(self, node: CallNode) -> Expression:
        names: list[str] = []
        for part in node.arguments[::2]:
            assert isinstance(part, LiteralNode)
            if part.value in names:
                raise part.at.reject(f"two fields of the ROW are named '{part.value[:60]}'", "write ROW(x AS name)")
            names.append(part.value)
        values = [self.bind(part) for part in node.arguments[1::2]]
        try:
            return Apply(node.name, tuple(values), fields.row_type(names, [value.type for value in values]))
        except Mismatch:
            raise node.at.reject("a ROW has too many fields") from None

    def _field(self, node: CallNode) -> Expression | None:
        """column['name'] of a MAP or STRUCT; None for an array, which takes an index."""
        key = node.arguments[1]
        if not isinstance(key, LiteralNode | ParameterNode):
            return None
        name, source = self.bind(key), self.bind(node.arguments[0])
        if not isinstance(name, Constant) or name.text is None:
            return None
        try:
            kind = fields.field_type(source.type, name.text)
        except Mismatch:
            return None
        if kind is None:
            known = [source.type.arrow.field(place).name for place in range(source.type.arrow.num_fields)]
            raise key.at.reject(f"the column has no field '{name.text[:60]}'", closest(name.text, known))
        return Apply(fields.FIELD, (source,), kind, name.text)

    def _named_field(self, node: CallNode) -> Expression:
        """`value.name` of a STRUCT or MAP; names of fields are found as names of columns are."""
        source, key = self.bind(node.arguments[0]), node.arguments[1]
        assert isinstance(key, LiteralNode)
        name = fields.field_name(source.type, key.value)
        try:
            kind = None if name is None else fields.field_type(source.type, name)
        except Mismatch:
            part = key.value[:60].upper()
            hint = f"write EXTRACT({part} FROM ts)" if source.type.is_time and unit_name(part) else ""
            raise key.at.reject(f"a value of type {source.type} has no fields", hint) from None
        if kind is None or name is None:
            raise key.at.reject(
                f"the value has no field '{key.value[:60]}'", closest(key.value, fields.field_names(source.type))
            )
        return Apply(fields.FIELD, (source,), kind, name)

    def _in_calendar(self, node: CallNode, name: str) -> Expression:
        if len(node.arguments) != 2:
            raise node.at.reject(f"{name} takes a time and a calendar", f"write {name}(ts, 'XNYS')")
        calendar = self.calendar_name(node.arguments[1])
        return self.resolved(name, [self.bind(node.arguments[0])], node, extra=calendar)

    def calendar_name(self, node: Node) -> str:
        """The name of an exchange's calendar. Raises TriggerRejected for an unknown one, or if no calendars are
        installed.
        """
        given = self.bind(node)
        name = given.text if isinstance(given, Constant) else None
        if name is None:
            raise node.at.reject("a calendar must be a text written in the trigger or a parameter", "write 'XNYS'")
        try:
            known = calendars.calendar_names()
        except calendars.MissingPackage:
            raise node.at.reject(
                "calendars of exchanges are not installed", "pip install 'candlewright-cep[calendars]'"
            ) from None
        found = next((other for other in known if other.lower() == name.lower()), None)
        if found is None:
            hint = closest(name, known) or "write 'XNYS', or another market identifier code"
            raise node.at.reject(f"unknown calendar '{name[:60]}'", hint)
        if calendars.named(found) > self.limits.calendars:
            raise node.at.reject(f"the text names more than {self.limits.calendars} calendars")
        # Load the calendar now, so that the trigger's first rows do not wait a second for it.
        calendars.calendar(found)
        return found

    def zone_name(self, node: Node) -> str:
        """The name of a time zone as the tz database spells it. Raises TriggerRejected for an unknown one."""
        zone = self.bind(node)
        name = zone.text if isinstance(zone, Constant) else None
        if name is None:
            raise node.at.reject("a time zone must be a text written in the trigger or a parameter")
        known = next((known for known in zones.zone_names() if known.lower() == name.lower()), None)
        if known is None:
            hint = closest(name, zones.zone_names()) or "write 'America/New_York'"
            raise node.at.reject(f"unknown time zone '{name[:60]}'", hint)
        return known

    def _with_unit(self, node: CallNode, name: str) -> Expression:
        if not node.arguments:
            raise node.at.reject(f"{name} needs a unit and a time")
        unit_node, rest = node.arguments[0], node.arguments[1:]
        written = self._word(unit_node)
        known = (field_name(written) if name == "EXTRACT" else unit_name(written)) if written else None
        if known is None:
            raise unit_node.at.reject(f"{name} needs a unit as its first argument", self._unit_hint(name, node))
        return self.resolved(name, [self.bind(argument) for argument in rest], node, extra=known)

    def _unit_hint(self, name: str, node: CallNode) -> str:
        """The call with the unit first, if another argument is a unit."""
        first, *rest = node.arguments
        usage = FUNCTIONS[name].usage
        unit = next((word for word in map(self._word, rest) if unit_name(word)), None)
        if usage is None or unit is None:
            return "for example 'minute'"
        called = usage.signature.replace("'unit'", f"'{unit}'").replace("field", unit.upper())
        return f"write {called.replace('time', self._word(first)[:60] or 'time')}"

    def _word(self, node: Node) -> str:
        if isinstance(node, LiteralNode) and isinstance(node.value, str):
            return node.value
        if isinstance(node, NameNode) and len(node.parts) == 1:
            return node.parts[0].text
        if isinstance(node, ParameterNode):
            return self.parameter(node).text or ""
        return ""

    def _with_pattern(self, node: CallNode, name: str) -> Expression:
        arguments = [self.bind(argument) for argument in node.arguments]
        if len(arguments) < 2:
            raise node.at.reject(f"{name} needs a text and a pattern")
        texts: list[str] = []
        for argument in arguments[1:]:
            if not isinstance(argument, Constant) or argument.text is None:
                raise node.at.reject(f"the pattern of {name} must be a text written in the trigger or a parameter")
            texts.append(argument.text)
        expression = texts[0]
        if name == "LIKE":
            if len(texts) > 1 and len(texts[1]) != 1:
                raise node.at.reject("ESCAPE takes one character")
            expression = like_expression(texts[0], texts[1] if len(texts) > 1 else None)
        try:
            pc.match_substring_regex(pa.scalar(""), expression)
        except pa.ArrowInvalid:
            raise node.at.reject(f"the pattern of {name} cannot be read") from None
        return self.resolved(name, arguments[:1], node, extra=expression)

    def _with_form(self, node: CallNode, name: str) -> Expression:
        """Functions whose pattern is compiled when the trigger is checked."""
        if not 2 <= len(node.arguments) <= (3 if name == "REGEXP_EXTRACT" else 2):
            raise node.at.reject(f"{node.name} has a wrong number of arguments")
        arguments = [self.bind(argument) for argument in node.arguments]
        constants = [argument for argument in arguments[1:] if isinstance(argument, Constant)]
        if len(constants) < len(arguments) - 1 or constants[0].text is None:
            raise node.at.reject(f"the pattern of {node.name} must be a text written in the trigger or a parameter")
        form: str | None = constants[0].text
        last = constants[1] if len(constants) > 1 else None
        if name == "DATE_FORMAT":
            form = form if time_format(form or "") is not None else None
        else:
            group = 0 if last is None else last.value
            form = named_group(form or "", group) if isinstance(group, int) and 0 <= group <= 100 else None
        try:
            if form is None:
                raise pa.ArrowInvalid
            if name != "DATE_FORMAT":
                FUNCTIONS[name].vector([constant(STRING, "", 1).expand()], STRING, form)
        except pa.ArrowInvalid:
            hint = "for example 'yyyy-MM-dd HH:mm:ss'" if name == "DATE_FORMAT" else ""
            raise node.arguments[1].at.reject(f"the pattern of {node.name} cannot be read", hint) from None
        return self.resolved(name, arguments[:1], node, extra=form)

    def _with_replacement(self, node: CallNode, name: str) -> Expression:
        if not 2 <= len(node.arguments) <= 3:
            raise node.at.reject(f"{name} needs a text, a pattern and a replacement")
        arguments = [self.bind(argument) for argument in node.arguments]
        texts: list[str] = []
        for argument in arguments[1:]:
            if not isinstance(argument, Constant) or argument.text is None:
                raise node.at.reject(f"the pattern of {name} must be a text written in the trigger or a parameter")
            texts.append(argument.text)
        form = replacement_form(*texts)
        try:
            FUNCTIONS[name].vector([constant(STRING, "", 1)], STRING, form)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise node.arguments[1].at.reject(f"the pattern of {name} cannot be read") from None
        return self.resolved(name, arguments[:1], node, extra=form)

    def interval(self, node: CallNode) -> Constant:
        unit = node.name.removeprefix("INTERVAL ")
        argument = node.arguments[0]
        text = self.parameter(argument).text if isinstance(argument, ParameterNode) else self._word(argument)
        if unit not in UNITS and " TO " not in unit:
            raise node.at.reject(
                f"an interval of {unit} has no fixed length", "add it to a time, or use days, hours or smaller units"
            )
        value = literal_interval(text or "", unit)
        if value is None:
            raise node.at.reject(f"'{(text or '')[:40]}' is not an amount of {unit}")
        return Constant(value, INTERVAL)

    # -- conversions ----------------------------------------------------------------------------------------------

    def converted(self, node: Expression, target: SqlType, at: Position) -> Expression:
        """The value converted to `target`. Raises TriggerRejected if that needs a CAST."""
        if node.type == target:
            return node
        if isinstance(node, Constant):
            adapted = adapted_constant(node, target)
            if adapted is not None:
                return adapted
        if target.kind is Kind.STRING and node.type.kind not in (Kind.OPAQUE, Kind.STRING):
            return self.cast(node, target, at)
        if not fits(node.type, target):
            raise at.reject(f"{node.type} where {target} is needed", "use CAST")
        return self.cast(node, target, at)

    def cast(self, node: Expression, target: SqlType, at: Position) -> Expression:
        if node.type == target:
            return node
        if isinstance(node, Constant) and node.text is not None and target.kind is not Kind.STRING:
            node = Constant(node.text, STRING, node.text)
        try:
            probe = Vector(node.type, _sample(node.type), None)
            cast(probe, target)
        except Mismatch:
            raise at.reject(f"{node.type} cannot be converted to {target}") from None
        return self.folded(Apply("CAST", (node,), target))


def _no_column(index: int) -> Vector:
    raise KeyError(index)


def _sample(kind: SqlType) -> object:
    return nulls(kind, 0).values


def signature_of(function: str) -> str | None:
    """How to call a function, from the tables of the language."""
    if function in INDICATORS:
        return INDICATORS[function].signature
    usage = AGGREGATES[function].usage if function in AGGREGATES else None
    if usage is None and function in FUNCTIONS:
        usage = FUNCTIONS[function].usage
    return usage.signature if usage is not None else None
