"""The operator's functions, for those who check triggers."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from core.log import get_logger
from core.settings_gateways import KapacitorFunctionSettings
from protobuf.udf_superset_pb2 import InfoResponse
from triggers.udf.asked import FunctionAsked
from triggers.udf.options import UdfRefused, checked_options
from triggers.udf.use import UdfFailed, ask_info

__all__ = ["KnownFunctions", "function_named"]

log = get_logger()
#: A function's description, or its failure to give one, is cached for this long: a client that registers many triggers
#: must not have a process started, or a hanging one waited for, each time.
_KEEP_SECONDS, _KEEP_FAILED_SECONDS = 60.0, 15.0


def function_named(functions: Mapping[str, KapacitorFunctionSettings], name: str) -> KapacitorFunctionSettings:
    """Raises UdfRefused for a name that is not in the operator's settings."""
    try:
        return functions[name]
    except KeyError:
        known = ", ".join(sorted(functions)) or "none"
        raise UdfRefused(f"there is no function {name[:100]!r}; the settings of this platform have {known}") from None


@dataclass(slots=True)
class KnownFunctions:
    """Caches functions' descriptions. Not thread-safe. `clock`: monotonic seconds."""

    functions: Mapping[str, KapacitorFunctionSettings] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    _told: dict[str, tuple[float, InfoResponse | str]] = field(default_factory=dict)

    def check(self, asked: FunctionAsked) -> None:
        """Raises UdfRefused for an unknown function and for options that it does not accept; UdfFailed if it does not
        answer now.
        """
        settings = function_named(self.functions, asked.name)
        until, told = self._told.get(asked.name, (0.0, ""))
        if self.clock() >= until:
            told = self._ask(asked.name, settings)
            keep = _KEEP_FAILED_SECONDS if isinstance(told, str) else _KEEP_SECONDS
            self._told[asked.name] = self.clock() + keep, told
        if isinstance(told, str):
            raise UdfFailed(f"the function {asked.name} is unavailable: {told}")
        try:
            checked_options(told, asked.calls)
        except UdfRefused as error:
            raise UdfRefused(f"{asked.name}: {error}") from error

    @staticmethod
    def _ask(name: str, settings: KapacitorFunctionSettings) -> InfoResponse | str:
        try:
            return ask_info(settings, lambda line: log.info("udf_log", udf=name, line=line))
        except UdfFailed as error:
            log.warning("udf_not_queried", udf=name, reason=str(error))
            return str(error)
