"""Reports all errors of a text at once, and the text with its obvious typos corrected."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from candlewright_cep.binding.recovery import collecting
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import DEFAULT
from candlewright_cep.syntax.pattern_parser import NO_COMMAS
from candlewright_cep.syntax.query_parser import UNOPENED
from candlewright_cep.syntax.slips import hinted, mended_at
from candlewright_cep.syntax.tokens import Position, TokenKind, tokenize

__all__ = ["Diagnosis", "Edit", "Problem", "diagnose", "edited"]

_ROUNDS = 8
_NAME = re.compile(r"did you mean '([^']+)'\?$")
_WORD = re.compile(r"did you mean ([A-Z_]+) instead of ([A-Za-z_0-9]+)\?$")
_WRITE = re.compile(r"write (AND|>=|=|AS)$")
_EARLIER = re.compile(r"write ([A-Z_]+\((?:\w+(?:, \w+)*|\*)?\)(?: OVER \([A-Za-z_ ]+\))?)$")
_DEFINED = re.compile(r"^write \w+ AS \S+ \.\.\.$")
_LITERAL = re.compile(r"write ('[^']*') in single quotes$")
_NUMBER = re.compile(r"write ([-+.\de]+) without quotes$")
_RENAMED = re.compile(r"is a key word: write (\"[^\"]*\"), or another name$")
_CALLED = re.compile(r"write \w+\(\.\.\.\) (OVER \([^.]*\))$")
_CLOSED = re.compile(r"write \) to close the parenthesis of line \d+, column \d+$")
_DEFINITION = re.compile(r"did you mean DEFINE ([A-Z_0-9]+) AS (.+)\?$")
_SEPARATED = re.compile(r"^(\S+) \(line (\d+), column (\d+)\) is a list of numbers: write ([\d.]+)$")
_TOKEN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\"[^\"\n]*\"|:[A-Za-z_][A-Za-z0-9_]*|&&?|=>|==?|,|'[^'\n]*'")
_QUOTES = "write texts in single quotes, names in double quotes"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `length` characters from `column` on with `text` (positions are 1-based)."""

    line: int
    column: int
    length: int
    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One error and its position in the original text (1-based). `edit`: a correction for that position."""

    line: int
    column: int
    message: str
    hint: str
    edit: Edit | None = None

    def to_dict(self) -> dict[str, str | int]:
        """A dictionary for JSON, without the edit."""
        return {"line": self.line, "column": self.column, "message": self.message, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`mended`: the text with its obvious typos corrected, or without errors, with the definitions and numbers that a
    warning asks for; None if there are none, or if that does not reduce the number of errors or warnings.
    """

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    mended: str | None


def diagnose(sql: str, check: Callable[[str], Sequence[str]]) -> Diagnosis:
    """Find all errors in a text. `check` returns the warnings of a text, or raises TriggerRejected.

    A syntax error hides everything after it, unless it is an obvious typo: checking then continues with the corrected
    text.
    """
    text, moved = sql, list[Edit]()
    problems: dict[tuple[int, int, str], Problem] = {}
    first: int | None = None
    for _ in range(_ROUNDS):
        errors, warnings = _errors(text, check)
        if first is None:
            first = len(errors)
        edits: set[Edit] = set()
        for error in errors:
            line, column = _original(error.line, error.column, moved)
            problem = Problem(line, column, error.message, error.hint, _mending(text, error, moved))
            if problem.edit in edits:
                # Parts of one slip, such as a ticker without quotes.
                continue
            edits |= {problem.edit} if problem.edit is not None else set()
            problems.setdefault((line, column, error.message), problem)
        made = _edits(text, errors)
        if not made:
            break
        for edit in made:
            text = edited(text, edit)
            moved.append(edit)
    ordered = tuple(problems[place] for place in sorted(problems, key=lambda place: place[:2]))
    if not ordered:
        return Diagnosis((), tuple(warnings), _as_warned(sql, warnings, check))
    is_better = text != sql and len(_errors(text, check)[0]) < len(problems)
    return Diagnosis(ordered, (), text if is_better else None)


def _as_warned(sql: str, warnings: Sequence[str], check: Callable[[str], Sequence[str]]) -> str | None:
    """The text with the definitions and numbers that warnings propose; None without any, or if they give no valid
    text.
    """
    text = sql
    for separated in filter(None, map(_SEPARATED.search, reversed(warnings))):
        written, line, column, number = separated.groups()
        text = edited(text, Edit(int(line), int(column), len(written), number))
    # From the last, as each goes before the other definitions.
    for found in filter(None, map(_DEFINITION.search, reversed(warnings))):
        text = _defined(text, *found.groups())
    if text == sql:
        return None
    errors, left = _errors(text, check)
    return text if not errors and len(left) < len(warnings) else None


def _defined(text: str, variable: str, condition: str) -> str:
    """The text with one more definition, for the first pattern that has the variable."""
    tokens = tokenize(text, DEFAULT)
    words = [token.text.upper() for token in tokens]
    start = next((place for place, word in enumerate(words) if word == "PATTERN" and variable in words[place:]), None)
    if start is None:
        return text
    depth = 0
    for token, word in zip(tokens[start:], words[start:], strict=True):
        if word == "DEFINE" and depth == 0:
            end = token.start + len(token.text)
            return f"{text[:end]} {variable} AS {condition},{text[end:]}"
        depth += (word == "(") - (word == ")")
        if depth < 0:
            return f"{text[: token.start]} DEFINE {variable} AS {condition}{text[token.start :]}"
    return text


def _errors(text: str, check: Callable[[str], Sequence[str]]) -> tuple[list[TriggerRejected], Sequence[str]]:
    with collecting() as found:
        try:
            return [], check(text)
        except TriggerRejected as error:
            # An error raised after a collected one may only follow from it.
            if not found:
                found.append(error)
        except Exception:
            # An exception can follow from an expression that was replaced with NULL; otherwise it is a bug.
            if not found:
                raise
    return [hinted(error, text) for error in sorted(found, key=lambda error: (error.line, error.column))], ()


def _mending(text: str, error: TriggerRejected, moved: Sequence[Edit]) -> Edit | None:
    """The edit in terms of the original text."""
    edit = _edit(text, error)
    if edit is None:
        return None
    line, column = _original(edit.line, edit.column, moved)
    return replace(edit, line=line, column=column)


def _edits(text: str, errors: Sequence[TriggerRejected]) -> list[Edit]:
    """From the last to the first, so that applying one does not move the others."""
    found: dict[tuple[int, int], Edit] = {}
    for error in errors:
        edit = _edit(text, error)
        if edit is not None:
            found[edit.line, edit.column] = edit
    return [found[place] for place in sorted(found, reverse=True)]


def _edit(text: str, error: TriggerRejected) -> Edit | None:
    lines = text.split("\n")
    if error.line > len(lines):
        return None
    if (slip := mended_at(text, error)) is not None:
        return _at_offset(text, *slip)
    if called := _CALLED.search(error.hint):
        return _windowed(text, error, called[1])
    line = lines[error.line - 1]
    if _CLOSED.search(error.hint):
        return Edit(error.line, error.column, 0, ")")
    if error.hint == UNOPENED:
        return Edit(error.line, error.column, 1, "")
    token = _TOKEN.match(line, error.column - 1)
    if wrong := _WORD.search(error.hint):
        return _word(lines, error, *wrong.groups())
    if token is None:
        return None
    written = token[0]
    if (named := _NAME.search(error.hint)) and written[0] not in "&=,":
        name = named[1]
        if written.startswith(":"):
            name = f":{name}"
        elif written.startswith("'"):
            name = f"'{name}'"
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return None
        return Edit(error.line, error.column, len(written), name)
    is_called = line[error.column - 1 + len(written) :].lstrip().startswith("(")
    if not is_called and (earlier := _EARLIER.search(error.hint)):
        return Edit(error.line, error.column, len(written), earlier[1])
    if _DEFINED.search(error.hint):
        return Edit(error.line, error.column, 0, "AS ")
    for replaced in (_LITERAL, _NUMBER, _RENAMED):
        if instead := replaced.search(error.hint):
            return Edit(error.line, error.column, len(written), instead[1])
    if error.hint == NO_COMMAS and written == ",":
        return Edit(error.line, error.column, 1, "" if line[error.column :].startswith(" ") else " ")
    if (shown := _WRITE.search(error.hint)) and written[0] in "&=":
        return Edit(error.line, error.column, len(written), shown[1])
    if error.hint == _QUOTES and written.startswith('"'):
        return Edit(error.line, error.column, len(written), "'" + written[1:-1].replace("'", "''") + "'")
    return None


def _at_offset(text: str, start: int, length: int, replacement: str) -> Edit | None:
    """None for an edit of several lines."""
    if "\n" in text[start : start + length]:
        return None
    before = text[:start]
    return Edit(before.count("\n") + 1, start - before.rfind("\n"), length, replacement)


def _windowed(text: str, error: TriggerRejected, window: str) -> Edit | None:
    """Adds OVER after the call at the error's position."""
    tokens = tokenize(text, DEFAULT)
    first = next((place for place, token in enumerate(tokens) if token.at == Position(error.line, error.column)), None)
    depth = 0
    for token in tokens[first:] if first is not None else ():
        depth += (token.text == "(") - (token.text == ")") if token.kind is TokenKind.SYMBOL else 0
        if token.text == ")" and depth == 0:
            return Edit(token.at.line, token.at.column + 1, 0, f" {window}")
    return None


def _word(lines: Sequence[str], error: TriggerRejected, meant: str, written: str) -> Edit | None:
    """The misspelt word is at the error's position, or shortly before."""
    for number in range(error.line, 0, -1):
        upto = error.column - 1 + len(written) if number == error.line else None
        places = [found.start() for found in re.finditer(rf"\b{written}\b", lines[number - 1][:upto])]
        if places:
            return Edit(number, places[-1] + 1, len(written), meant)
    return None


def edited(text: str, edit: Edit) -> str:
    """The text after the edit."""
    lines = text.split("\n")
    line, start = lines[edit.line - 1], edit.column - 1
    lines[edit.line - 1] = line[:start] + edit.text + line[start + edit.length :]
    return "\n".join(lines)


def _original(line: int, column: int, moved: Sequence[Edit]) -> tuple[int, int]:
    """Where a position of the corrected text was in the original one."""
    for edit in reversed(moved):
        if edit.line == line and column > edit.column:
            column = max(edit.column, column - len(edit.text) + edit.length)
    return line, column
