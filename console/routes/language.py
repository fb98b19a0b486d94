"""The trigger language and the columns of the tables, for an editor's completion."""

from pydantic import Field
from starlette.responses import Response

from console.operation import Answer, Call, Operation
from console.routes.shapes import Shape
from console.routes.worked import worked

__all__ = ["OPERATIONS"]


class FunctionEntry(Shape):
    name: str
    kind: str = Field(description="scalar, aggregate, indicator, candle, window or pattern.")
    signature: str
    text: str
    nulls: str = Field(description="How NULLs are handled.")
    stream: str = Field(description="`yes`, or where it can run over a stream.")
    example: str = Field(description="For a scalar function a condition that is true, otherwise a column of a query.")


class GrammarForm(Shape):
    name: str = Field(description="Its keywords.")
    form: str
    text: str
    example: str = Field(description="A complete text.")


class NamedText(Shape):
    name: str
    text: str


class ColumnEntry(NamedText):
    type: str


class Language(Shape):
    keywords: list[str]
    types: list[str]
    forms: list[GrammarForm] = Field(description="The form in the grammar, with keywords in capitals.")
    functions: list[FunctionEntry]
    parameters: list[NamedText] = Field(description="Parameters with a special meaning.")
    views: list[NamedText] = Field(description="Views that need not be registered.")
    tables: dict[str, list[ColumnEntry]] = Field(description="Columns by table.")


async def get_language(call: Call) -> Response:
    answer = await worked(call, "language", {})
    answer.headers["Cache-Control"] = "max-age=3600"
    return answer


OPERATIONS = (
    Operation(
        method="GET",
        path="/language",
        handler=get_language,
        summary="The trigger language, and columns of the tables",
        answers={200: Answer("For completion and help in an editor.", Language)},
        tag="triggers",
    ),
)
