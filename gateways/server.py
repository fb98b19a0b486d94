"""The event loop that serves the enabled gateways."""

import asyncio
from collections.abc import Sequence

from core.http import Status
from core.log import get_logger
from gateways.gateway import Gateway

log = get_logger()


class Gateways:
    """Starts `gateways` in order and stops them in reverse; if one fails to start, the others are stopped."""

    def __init__(self, gateways: Sequence[Gateway]) -> None:
        self._gateways = gateways
        self._is_ready = False

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises what a gateway's start raises."""
        started: list[Gateway] = []
        try:
            for gateway in self._gateways:
                await gateway.start()
                started.append(gateway)
                log.info("gateway_started", gateway=gateway.name, **gateway.details())
            self._is_ready = True
            await stop.wait()
        finally:
            self._is_ready = False
            for gateway in reversed(started):
                await gateway.stop()

    def status(self) -> Status:
        """For the status page; may be called from any thread."""
        return Status(
            part="gateways",
            is_ready=self._is_ready,
            problems=tuple(
                f"{gateway.name}: {problem}" for gateway in self._gateways for problem in gateway.problems()
            ),
            details={gateway.name: dict(gateway.details()) for gateway in self._gateways},
        )
