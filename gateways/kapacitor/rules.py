"""Triggers that are registered on the platform, by id."""

from google.protobuf.message import DecodeError

from bus.api import KeyedTables
from bus.topics import TABLE_TRIGGERS
from gateways.kapacitor.function import OptionsRefused
from protobuf.records_pb2 import TriggerEntry

__all__ = ["registered_rule"]


def registered_rule(bus: KeyedTables, trigger_id: str) -> tuple[str, dict[str, str]]:
    """Its text and parameters. Raises OptionsRefused for an id that is not registered, and BusUnavailable."""
    (value,) = bus.get(TABLE_TRIGGERS, [trigger_id])
    try:
        entry = TriggerEntry() if value is None else TriggerEntry.FromString(value)
    except DecodeError as error:
        raise OptionsRefused(f"what is registered as trigger {trigger_id!r} cannot be read") from error
    if value is None or entry.is_leaving:
        raise OptionsRefused(f"no trigger {trigger_id!r} is registered")
    parameters = dict(entry.registration.parameters)
    if "udf" in parameters:
        raise OptionsRefused(
            f"the rows of trigger {trigger_id!r} go through a function, which a task here does not run"
        )
    return entry.registration.sql, parameters
