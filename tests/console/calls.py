"""The application without a socket, and a separate process for tests that need one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from console.app import application
from console.services import Services
from core.settings import Settings

HOME = "http://127.0.0.1:8090"


def settings_in(folder: Path, **console: Any) -> Settings:
    return Settings.model_validate({"data_dir": folder, "console": console})


@asynccontextmanager
async def calling(settings: Settings, base_url: str = HOME, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    services = Services(settings)
    transport = httpx.ASGITransport(application(services), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers) as client:
        yield client
    await services.close()
