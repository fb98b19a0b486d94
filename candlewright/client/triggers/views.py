"""`client.views`: named queries, which triggers read; one class for each client."""

from candlewright.client.records import RegisteredView, ViewInfo
from candlewright.client.triggers.triggers import ADD_SECONDS, AsyncRunner, Runner


class Views:
    """See `Client.views`."""

    def __init__(self, client: Runner) -> None:
        self._client = client

    def add(self, name: str, sql: str, *, replace: bool = False, timeout: float = ADD_SECONDS) -> RegisteredView:
        """Register a view: a SELECT, or `CREATE VIEW name AS SELECT …`. Triggers and other views read it by its name.

        `replace`: change the text under a known name; the triggers that read it start afresh, and the change is refused
        if it would invalidate one of them. Raises InvalidTrigger with line, column and hint, and PlatformRefused.
        """
        return self._client.run(lambda ask: ask.views.add(name, sql, replace=replace, timeout_seconds=timeout))

    def list(self, *, built_in: bool = False) -> "list[ViewInfo]":
        """All registered views, by name; or all `built_in` ones, which need not be registered."""
        return self._client.run(lambda ask: ask.views.all(built_in=built_in))

    def show(self, name: str) -> ViewInfo:
        """Raises ViewNotFound."""
        return self._client.run(lambda ask: ask.views.get(name))

    def remove(self, name: str, *, timeout: float = ADD_SECONDS) -> None:
        """Raises ViewNotFound, and PlatformRefused for one that views or triggers read."""
        self._client.run(lambda ask: ask.views.remove(name, timeout))


class AsyncViews:
    """The same calls as `Views`, as coroutines."""

    def __init__(self, client: AsyncRunner) -> None:
        self._client = client

    async def add(self, name: str, sql: str, *, replace: bool = False, timeout: float = ADD_SECONDS) -> RegisteredView:
        """See `Views.add`."""
        return await self._client.run(lambda ask: ask.views.add(name, sql, replace=replace, timeout_seconds=timeout))

    async def list(self, *, built_in: bool = False) -> "list[ViewInfo]":
        """See `Views.list`."""
        return await self._client.run(lambda ask: ask.views.all(built_in=built_in))

    async def show(self, name: str) -> ViewInfo:
        """Raises ViewNotFound."""
        return await self._client.run(lambda ask: ask.views.get(name))

    async def remove(self, name: str, *, timeout: float = ADD_SECONDS) -> None:
        """See `Views.remove`."""
        await self._client.run(lambda ask: ask.views.remove(name, timeout))
