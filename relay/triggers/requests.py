"""Validates requests about triggers before their text is checked. Pure."""

import re

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ticker import Ticker
from relay.requests.validation import check_id
from triggers.texts.check import LIVE_INPUTS

_MAX_TICKERS = 10_000
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def clean(message: ing.CEPTriggerRequest) -> ing.CEPTriggerRequest:
    """The request in the form in which it is compared and stored: each ticker once, no empty callback, no unknown
    fields.

    Raises InvalidRequest with a sentence. An unknown venue is accepted, since a trigger may wait for its data.
    """
    check_id("trigger_id", message.trigger_id)
    if message.callback_id:
        check_id("callback_id", message.callback_id)
    if len(message.tickers) > _MAX_TICKERS:
        raise InvalidRequest(f"A trigger names at most {_MAX_TICKERS} tickers; none at all means all.")
    for ticker in message.tickers:
        try:
            Ticker.parse(ticker)
        except InvalidRequest as error:
            raise InvalidRequest(f"A ticker is malformed: {error}.") from error
    request = ing.CEPTriggerRequest(
        trigger_id=message.trigger_id,
        sql_pattern=message.sql_pattern,
        tickers=dict.fromkeys(message.tickers),
        parameters=message.parameters,
    )
    if message.callback_id:
        request.callback_id = message.callback_id
    return request


def check_view(message: cw.ViewRequest | cw.ViewRemove) -> None:
    """Raises InvalidRequest with a sentence."""
    if not _VIEW_NAME.fullmatch(message.name):
        raise InvalidRequest(
            "The name of a view has 1 to 100 letters, digits, _, - and dots, and begins with a letter or _."
        )
    if message.name.lower() in LIVE_INPUTS:
        raise InvalidRequest(f"{message.name!r} is the name of an input of triggers.")


def content(request: ing.CEPTriggerRequest) -> tuple[object, ...]:
    """The content of a request; requests with equal content ask for the same trigger."""
    return (
        request.sql_pattern,
        frozenset(request.tickers),
        frozenset(request.parameters.items()),
        request.callback_id,
    )
