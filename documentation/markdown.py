"""Pieces of Markdown, and comments of the source as text."""

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Iterable, Sequence

NOTE = "<!-- Made from the code by `python -m documentation`; do not edit. -->\n\n"


def page(title: str, *blocks: str) -> str:
    return f"{NOTE}# {title}\n\n" + "\n\n".join(block.strip() for block in blocks if block.strip()) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(text) for text in line) + " |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def comments_of_fields(of: type) -> dict[str, str]:
    """The `#:` comment above, or the comment beside, each annotated field of a class."""
    source = textwrap.dedent(inspect.getsource(of))
    lines = source.splitlines()
    beside = {
        token.start[0]: token.string.lstrip("#: ")
        for token in tokenize.generate_tokens(io.StringIO(source + "\n").readline)
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].strip() != token.string
    }
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field in node.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        above: list[str] = []
        line = field.lineno - 2
        while line >= 0 and lines[line].strip().startswith("#"):
            above.insert(0, lines[line].strip().lstrip("#: "))
            line -= 1
        text = " ".join(above) or beside.get(field.lineno, "")
        if text:
            found[field.target.id] = text
    return found
