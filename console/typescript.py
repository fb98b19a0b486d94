"""Generates the types of the TypeScript client from the API's document.

python -m console.typescript > clients/typescript/src/api.ts
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from console.openapi import PREFIX, document

__all__ = ["types"]

_HEAD = "// Generated from the API's document by `python -m console.typescript`; a test compares them. Do not edit.\n"
_JSON, _STREAM = "application/json", "text/event-stream"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
#: Already a parameter of the client.
_FORMAT = "format"


def types(api: Mapping[str, Any]) -> str:
    schemas: dict[str, Any] = api["components"]["schemas"]
    calls = [
        (method.upper(), path.removeprefix(PREFIX), call)
        for path, methods in api["paths"].items()
        for method, call in methods.items()
    ]
    (events,) = (
        media["x-events"]
        for *_, call in calls
        if (media := call["responses"].get("200", {}).get("content", {}).get(_STREAM)) is not None
    )
    answered = [(method, path, call, answer) for method, path, call in calls if (answer := _answer(call)) is not None]
    tabular = [call["operationId"] for _, _, call, _ in answered if _FORMAT in _names(call)]
    places = [
        f"{call['operationId']}: {{ method: {json.dumps(method)}, path: {json.dumps(path)} }},"
        for method, path, call, _ in answered
    ]
    return "\n".join(
        (
            _HEAD,
            *(_declaration(name, schema) for name, schema in sorted(schemas.items()) if name != "Form"),
            "/** What a live event holds, by its kind. */",
            *_block("export interface LiveEvents {", (f"{kind}: {_type(own)};" for kind, own in events.items())),
            "/** What each call is given, and what it answers. */",
            *_block(
                "export interface Calls {", (line for _, _, call, answer in answered for line in _call(call, answer))
            ),
            "/** Calls that can also return their rows as CSV or Arrow. */",
            f"export type Tabular = {' | '.join(map(json.dumps, tabular))};\n",
            *_block("export const CALLS: Record<keyof Calls, { method: string; path: string }> = {", places, "};"),
        )
    )


def _block(head: str, lines: Iterable[str], end: str = "}") -> Iterator[str]:
    yield head
    yield from (f"  {line}" for line in lines)
    yield f"{end}\n"


def _answer(call: Mapping[str, Any]) -> str | None:
    """The type of the JSON in a successful answer."""
    answers = [answer for status, answer in call["responses"].items() if status.startswith("2")]
    found = {
        _type(answer["content"][_JSON]["schema"]) if "content" in answer else "void"
        for answer in answers
        if "content" not in answer or "schema" in answer["content"].get(_JSON, {})
    }
    return " | ".join(sorted(found)) or None


def _names(call: Mapping[str, Any]) -> set[str]:
    return {each["name"] for each in call.get("parameters", ())}


def _call(call: Mapping[str, Any], answer: str) -> Iterator[str]:
    parameters = [
        f"{each['name']}{'' if each['required'] else '?'}: {_type(each['schema'])}"
        for each in call.get("parameters", ())
        if each["name"] != _FORMAT
    ]
    given = [f"{{ {'; '.join(parameters)} }}"] if parameters else []
    if "requestBody" in call:
        given.append(_type(call["requestBody"]["content"][_JSON]["schema"]))
    yield f"/** {call['summary']}. */"
    yield f"{call['operationId']}: {{ given: {' & '.join(given) or 'Record<never, never>'}; answer: {answer} }};"


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    return _comment(schema, "") + f"export interface {name} {{\n{''.join(_fields(schema))}}}\n"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, own in schema.get("properties", {}).items():
        yield f"{_comment(own, '  ')}  {name}{'' if name in required else '?'}: {_type(own)};\n"
    if schema.get("additionalProperties") is True:
        yield "  [name: string]: unknown;\n"


def _comment(schema: Mapping[str, Any], indent: str) -> str:
    text = " ".join(schema.get("description", "").split())
    return f"{indent}/** {text} */\n" if text else ""


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    kind = schema.get("type")
    if kind == "array":
        inner = _type(schema["items"])
        return f"Array<{inner}>" if " " in inner else f"{inner}[]"
    if kind == "object":
        inner = schema.get("additionalProperties", True)
        return f"Record<string, {_type(inner) if isinstance(inner, Mapping) else 'unknown'}>"
    return _PLAIN[kind] if kind is not None else "unknown"


if __name__ == "__main__":
    from console.app import OPERATIONS

    print(types(document(OPERATIONS)), end="")  # noqa: T201
