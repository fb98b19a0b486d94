"""What an editor shows for a text: problems, completions, help. No protocol, no clock; positions are 0-based."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected, formatted
from candlewright_cep.diagnosis import Edit
from candlewright_cep.planning.candle_views import CANDLE_PATTERNS
from triggers.texts.check import TriggerRules, diagnose_trigger
from triggers.texts.language import language

__all__ = [
    "Completion",
    "Finding",
    "Findings",
    "Help",
    "Signature",
    "canonical",
    "completions",
    "findings",
    "given_beside",
    "help_at",
    "signature_at",
]

_TOKEN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|\"[^\"\n]*\"|'[^'\n]*'|[:$][A-Za-z_{][A-Za-z0-9_}]*|[0-9.]+|[<>=!|&:-]+|\S"
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)\s+AS\b", re.IGNORECASE)
_MOST_CHARACTERS = 1 << 16
#: What decides which call a position is in; a text or a comment may still be open.
_CALL_TOKEN = re.compile(
    r"(?P<skipped>--[^\n]*|/\*.*?(?:\*/|\Z)|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z))|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|\S",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Given:
    """The rest of a registration, from the text's first line: `-- parameters: a=1; tickers: …`."""

    parameters: Mapping[str, str]
    tickers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """From `column` to `end` of `line`. `edit`: the change that fixes this problem alone."""

    line: int
    column: int
    end: int
    message: str
    is_error: bool = True
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class Findings:
    """`mended`: the text with all obvious slips fixed."""

    found: tuple[Finding, ...]
    mended: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """`kind`: function, keyword, column, table, variable or parameter."""

    label: str
    kind: str
    detail: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Help:
    """`text` is Markdown."""

    column: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Signature:
    """A call that is being written. `parameters`: where each begins and ends in `label`; `active`: the index of the one
    at the position, None after the last one. `text` is Markdown.
    """

    label: str
    text: str
    parameters: tuple[tuple[int, int], ...]
    active: int | None


def given_beside(text: str) -> Given:
    found: dict[str, list[str]] = {}
    first = text.partition("\n")[0]
    if first.startswith("--"):
        for part in first.removeprefix("--").split(";"):
            name, _, values = part.partition(":")
            found[name.strip()] = [value.strip() for value in values.split(",") if value.strip()]
    pairs = (pair.partition("=") for pair in found.get("parameters", []))
    return Given({name.strip(): value.strip() for name, _, value in pairs}, tuple(found.get("tickers", ())))


def findings(text: str, rules: TriggerRules, views: Mapping[str, str]) -> Findings:
    """All errors of the text, or, if it has none, its warnings."""
    if not text.strip():
        return Findings(())
    given = given_beside(text)
    try:
        request = CEPTriggerRequest(
            trigger_id="editor", sql_pattern=text, tickers=given.tickers, parameters=given.parameters
        )
        told = diagnose_trigger(request, rules, views)
    except (InvalidRequest, ValueError) as error:
        return Findings((_at_the_start(text, str(error), is_error=True),))
    lines = text.split("\n")
    errors = [
        Finding(*_span(lines, each.line, each.column), _with_hint(each.message, each.hint), edit=each.edit)
        for each in told.problems
    ]
    doubts = [_at_the_start(text, warning, is_error=False) for warning in told.warnings]
    return Findings((*errors, *doubts), told.mended)


def _with_hint(message: str, hint: str) -> str:
    return f"{message} ({hint})" if hint else message


def _span(lines: list[str], line: int, column: int) -> tuple[int, int, int]:
    """The token at the position; at the end of the text, the last one."""
    number = min(line, len(lines)) - 1
    start = min(column - 1, len(lines[number]))
    token = _TOKEN.match(lines[number], start)
    if token is not None:
        return number, start, token.end()
    before = [found.start() for found in _TOKEN.finditer(lines[number][:start])]
    return number, before[-1] if before else start, start


def _at_the_start(text: str, message: str, *, is_error: bool) -> Finding:
    """The span of the first line that is not a comment."""
    lines = text.split("\n")
    number = next((place for place, line in enumerate(lines) if line.strip() and not line.startswith("--")), 0)
    start = len(lines[number]) - len(lines[number].lstrip())
    return Finding(number, start, len(lines[number].rstrip()), message, is_error)


def canonical(text: str) -> str | None:
    """The text in its canonical layout; None if it cannot be parsed."""
    try:
        return formatted(text)
    except TriggerRejected:
        return None


# ---- completion and help
@cache
def _language() -> dict[str, Any]:
    return language()


def completions(text: str, line: int, column: int, *, views: Mapping[str, str]) -> list[Completion]:
    """Completions for a position; the editor filters them by the typed characters."""
    before = _line(text, line)[:column]
    if re.search(r"[:$]\{?[A-Za-z0-9_]*$", before) and not before.endswith("::"):
        return [Completion(name, "parameter", value) for name, value in given_beside(text).parameters.items()]
    if qualified := re.search(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*)\.[A-Za-z0-9_]*$", before):
        return [*_columns(text, qualified[1]), *_columns_of_views(text)]
    tables = dict.fromkeys(_language()["tables"], "") | _built_in_views() | dict.fromkeys(views, "")
    found = [*_words(), *(Completion(name, "table", text=about) for name, about in tables.items())]
    found += _columns(text, "")
    found += [Completion(name, "variable") for name in _variables(text)]
    return found


@cache
def _words() -> tuple[Completion, ...]:
    """Words of the language, wherever they are valid."""
    known = _language()
    called = (
        Completion(each["name"], "function", each["signature"], _function_text(each)) for each in known["functions"]
    )
    forms = (Completion(each["name"], "keyword", each["form"], _form_text(each)) for each in known["forms"])
    first = {each["name"] for each in known["forms"]}
    rest = (Completion(word, "keyword") for word in known["keywords"] if word not in first)
    return (*called, *forms, *rest)


def _line(text: str, number: int) -> str:
    lines = text[: 2 * _MOST_CHARACTERS].split("\n")
    return lines[number] if number < len(lines) else ""


@cache
def _built_in_views() -> dict[str, str]:
    """What each of them contains, by name."""
    return {each["name"]: each["text"] for each in _language()["views"]}


def _words_of(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text[:_MOST_CHARACTERS])}


def _columns_of_views(text: str) -> Iterator[Completion]:
    """What built-in views have besides the columns of bars, if the text names one."""
    if not _built_in_views().keys().isdisjoint(_words_of(text)):
        yield Completion("value", "column", "DOUBLE", "what the candle pattern is on this bar, as of TA-Lib")
        for name, about in _built_in_views().items():
            if name != CANDLE_PATTERNS:
                yield Completion(name, "column", "DOUBLE", f"{about} (of `{CANDLE_PATTERNS}`)")


def _columns(text: str, qualifier: str) -> Iterator[Completion]:
    """Columns of the inputs that the text names, if only through built-in views; of all inputs if it names none."""
    words = _words_of(text)
    if not _built_in_views().keys().isdisjoint(words):
        words.add("ohlc")
    tables = _language()["tables"]
    named = [qualifier.lower()] if qualifier.lower() in tables else [name for name in tables if name in words]
    seen = set[str]()
    for table in named or tables:
        for column in tables[table]:
            if column["name"] not in seen:
                seen.add(column["name"])
                yield Completion(column["name"], "column", column["type"], f"{column['text']} (of `{table}`)")


def _variables(text: str) -> list[str]:
    """Variables of DEFINE, and names of WITH and of windows."""
    return sorted(
        {name for name in _VARIABLE.findall(text[:_MOST_CHARACTERS]) if name.upper() not in ("CREATE", "END")}
    )


def help_at(text: str, line: int, column: int) -> Help | None:
    content = _line(text, line)
    for word in _WORD.finditer(content):
        if word.start() <= column <= word.end():
            text_of = _help(content, word, text)
            return None if text_of is None else Help(word.start(), word.end(), text_of)
    return None


def _help(content: str, word: "re.Match[str]", text: str) -> str | None:
    name, known = word[0].upper(), _language()
    is_called = content[word.end() :].lstrip().startswith("(")
    functions = {each["name"]: each for each in known["functions"]}
    if is_called and name in functions:
        return _function_text(functions[name])
    if content[: word.start()].endswith((":", "${")):
        value = given_beside(text).parameters.get(word[0])
        return f"parameter `{word[0]}`: " + ("not given in the first line" if value is None else f"`{value}`")
    around = " ".join(content.upper().split())
    forms = [each for each in known["forms"] if name in each["name"].split() and each["name"] in around]
    if forms:
        return _form_text(max(forms, key=lambda each: len(each["name"])))
    for column in _columns(text, ""):
        if column.label == word[0].lower():
            return f"`{column.label}` {column.detail}\n\n{column.text}"
    for kind in ("parameter", "view"):
        for each in known[f"{kind}s"]:
            if each["name"] == word[0]:
                return f"{kind} `{each['name']}`\n\n{each['text']}"
    return None


def signature_at(text: str, line: int, column: int) -> Signature | None:
    """The innermost call of a function whose arguments contain the position."""
    lines = text[: 2 * _MOST_CHARACTERS].split("\n")[: line + 1]
    before = "\n".join([*lines[:line], *(each[:column] for each in lines[line:])])
    opened: list[tuple[str, int]] = []
    word = ""
    for token in _CALL_TOKEN.finditer(before):
        written = token[0]
        if token["skipped"] is not None:
            continue
        if written in ("(", "["):
            opened.append((word.upper() if written == "(" else "", 0))
        elif written in (")", "]") and opened:
            opened.pop()
        elif written == "," and opened:
            name, place = opened[-1]
            opened[-1] = name, place + 1
        word = token["word"] or ""
    known = _signatures()
    found = next(((name, place) for name, place in reversed(opened) if name in known), None)
    if found is None:
        return None
    label, help_text = known[found[0]]
    parameters = _parameters(label)
    last = len(parameters) - 1
    is_open = last >= 0 and label[slice(*parameters[last])] == "…"
    active = min(found[1], last) if is_open else found[1]
    return Signature(label, help_text, parameters, active if active <= last else None)


@cache
def _signatures() -> dict[str, tuple[str, str]]:
    """By name, the signature and the description of everything that is called like a function."""
    known = _language()
    found = {
        each["name"]: (each["form"], each["text"]) for each in known["forms"] if f"{each['name']}(" in each["form"]
    }
    return found | {each["name"]: (each["signature"], each["text"]) for each in known["functions"]}


def _parameters(label: str) -> tuple[tuple[int, int], ...]:
    """Where the parameters of a signature begin and end."""
    start, end = label.index("(") + 1, label.index(")")
    inner = label[start:end]
    if not inner or "(" in inner:
        return ()
    found, place = [], start
    for part in inner.split(", "):
        found.append((place, place + len(part)))
        place += len(part) + 2
    return tuple(found)


def _function_text(entry: Mapping[str, str]) -> str:
    facts = [f"NULLs: {entry['nulls']}"]
    if entry["stream"] != "yes":
        facts.append(f"On a stream: {entry['stream']}")
    return "\n\n".join([_code(entry["signature"]), entry["text"], *facts, _code(entry["example"])])


def _form_text(entry: Mapping[str, str]) -> str:
    return "\n\n".join([_code(entry["form"]), entry["text"], _code(canonical(entry["example"]) or entry["example"])])


def _code(text: str) -> str:
    return f"```sql\n{text.rstrip()}\n```"
