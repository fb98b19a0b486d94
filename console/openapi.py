"""The OpenAPI 3.1 document of the API, generated from the operations that are served."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from candlewright.version import VERSION
from console.operation import Operation
from console.problems import MEDIA_TYPE

__all__ = ["COOKIE", "PREFIX", "document"]

PREFIX = "/api/v1"
#: The token of a browser's session.
COOKIE = "candlewright_session"
_REF = "#/components/schemas/{model}"
_PARAMETER = re.compile(r"{(\w+)}")


class ProblemBody(BaseModel):
    """An error, as defined in RFC 9457."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    title: str
    status: int
    detail: str = Field(description="A sentence for people.")


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    models: set[type[BaseModel]] = {ProblemBody}
    for each in operations:
        models |= {answer.model for answer in each.answers.values() if answer.model is not None}
        models |= {model for answer in each.answers.values() for model in answer.events.values()}
        models |= {model for model in (each.body, each.query) if model is not None}
    ordered = sorted(models, key=lambda model: model.__name__)
    references, definitions = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    schemas = {model: references[model, "validation"] for model in ordered}
    components = dict(definitions.get("$defs", {}))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(PREFIX + each.path, {})[each.method.lower()] = _operation(each, schemas, components)
    # Parameters are inlined where they are used.
    for each in operations:
        if each.query is not None:
            components.pop(each.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "candlewright",
            "version": VERSION,
            "summary": "Candles, live data and triggers over HTTP",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "`candlewright keys new NAME --role …`"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _operation(each: Operation, schemas: dict[type[BaseModel], Any], components: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"operationId": each.name, "summary": each.summary, "tags": [each.tag]}
    if each.is_public:
        made["security"] = [{}]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(each.path)
    ]
    if each.query is not None:
        schema = components[each.query.__name__]
        required = schema.get("required", ())
        parameters += [
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "schema": {key: value for key, value in own.items() if key not in ("title", "description")},
                **({"description": own["description"]} if "description" in own else {}),
            }
            for name, own in schema.get("properties", {}).items()
        ]
    if parameters:
        made["parameters"] = parameters
    if each.body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[each.body]}}}
    made["responses"] = {str(status): _answer(answer, schemas) for status, answer in each.answers.items()}
    problems = {400, 421, 429, *each.problems}
    if not each.is_public:
        problems |= {401, 403}
    if each.body is not None:
        problems |= {408, 413, 415}
    for status in sorted(problems):
        made["responses"][str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": schemas[ProblemBody]}},
        }
    return made


def _answer(answer: Any, schemas: dict[type[BaseModel], Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if answer.model is not None:
        content["application/json"] = {"schema": schemas[answer.model]}
    for media in answer.media:
        content[media] = {"schema": {"type": "string"}} if media.startswith("text/") else {}
        if answer.events:
            content[media]["x-events"] = {kind: schemas[model] for kind, model in answer.events.items()}
    made: dict[str, Any] = {"description": answer.description}
    if content:
        made["content"] = content
    if answer.headers:
        made["headers"] = {
            name: {"description": text, "schema": {"type": "string"}} for name, text in answer.headers.items()
        }
    return made
