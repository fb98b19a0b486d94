"""The destinations of alerts."""

from pydantic import Field
from starlette.responses import Response

from console.operation import Answer, Call, Operation
from console.routes.shapes import Shape, json_response

__all__ = ["OPERATIONS"]


class DestinationRow(Shape):
    name: str = Field(description="The name that a trigger's parameter `alert_to` uses.")
    service: str = Field(description="The scheme of its address, such as `https` or `ntfy`; the rest is secret.")


class Destinations(Shape):
    """The settings `[alerts.NAME]`."""

    destinations: list[DestinationRow]


async def list_alerts(call: Call) -> Response:
    destinations = call.services.settings.alerts.destinations
    rows = [{"name": name, "service": own.scheme} for name, own in sorted(destinations.items())]
    return json_response({"destinations": rows})


OPERATIONS = (
    Operation(
        method="GET",
        path="/alerts",
        handler=list_alerts,
        summary="Destinations of alerts",
        answers={200: Answer("By name.", Destinations)},
        tag="triggers",
    ),
)
