"""The words of the trigger language and the columns of the tables, for an editor's completion."""

from pydantic import Field
from starlette.responses import Response

from console.operation import Answer, Call, Operation
from console.routes.shapes import Shape

__all__ = ["OPERATIONS"]


class Language(Shape):
    keywords: list[str]
    functions: list[str]
    tables: dict[str, list[str]] = Field(description="Columns by table.")


async def get_language(_: Call) -> Response:
    from candlewright_cep.words import functions, keywords
    from iceberg import TABLES

    body = Language(
        keywords=keywords(),
        functions=functions(),
        tables={table.name: [field.name for field in table.schema.fields] for table in TABLES},
    )
    return Response(body.model_dump_json(), media_type="application/json", headers={"Cache-Control": "max-age=3600"})


OPERATIONS = (
    Operation(
        "GET",
        "/language",
        get_language,
        "Words of the trigger language and columns of the tables",
        {200: Answer("For completion in an editor.", Language)},
        tag="triggers",
    ),
)
