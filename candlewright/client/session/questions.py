"""Waits for answers: a request is resent until its answer arrives. Shared by both clients."""

import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from candlewright.client.errors import PlatformRefused, PlatformUnreachable
from candlewright.client.session.session import (
    Operation,
    Published,
    Reply,
    Send,
    Session,
    TimedOut,
    Wait,
    is_cut_off,
)
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams

M = TypeVar("M", bound=Message)
T = TypeVar("T")

#: Pause before an unanswered request is resent; it doubles up to the second figure.
RESEND_SECONDS, RESEND_MAX_SECONDS = 0.5, 4.0


def fresh_id(prefix: str, name: str = "") -> str:
    """`name`: of the client's key, which its ids begin with."""
    return "-".join(filter(None, (name, prefix, secrets.token_hex(8))))


class Questions:
    """`timeout_seconds` is how long one answer is waited for, resends included."""

    def __init__(
        self, session: Session, client_id: str, *, address: str, timeout_seconds: float, name: str = ""
    ) -> None:
        self._session = session
        self._client_id = client_id
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._name = name
        self.response_topic = streams.response(client_id)

    def _ask(
        self, message: Message | Sequence[Message], answer: type[M], heard: list[Published] | None = None
    ) -> Operation[M]:
        """The `answer`; publications that come first go to `heard`. Raises PlatformRefused, PlatformUnreachable."""
        messages = [message] if isinstance(message, Message) else message
        found, _ = yield from self._asked(messages, answer_of(answer), heard=heard)
        return found

    def _asked(
        self,
        messages: Sequence[Message],
        pick: Callable[[Message], T | None],
        *,
        heard: list[Published] | None = None,
        timeout_seconds: float | None = None,
        pause: float = RESEND_SECONDS,
        longest_pause: float = RESEND_MAX_SECONDS,
    ) -> Operation[tuple[T, int]]:
        """The result of `pick` for the first reply that it accepts, and how often the request was sent until then. A
        reply of a relay that is cut off is only accepted if no other relay answers.
        """
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        give_up = self._session.now + timeout
        sent = 0
        refusal: Message | None = None
        while self._session.now < give_up:
            for each in messages:
                yield Send(each)
            sent += 1
            until = min(give_up, self._session.now + pause)
            pause = min(pause * 2, longest_pause)
            while not isinstance(event := (yield Wait(until)), TimedOut):
                if isinstance(event, Published):
                    if heard is not None:
                        heard.append(event)
                elif isinstance(event, Reply):
                    if self._session.has_other_relays and is_cut_off(event.message):
                        refusal = event.message
                    elif (found := pick(event.message)) is not None:
                        return found, sent
        if refusal is not None and (found := pick(refusal)) is not None:
            return found, sent
        raise PlatformUnreachable(self._address, timeout, self._name)

    def _next(self, pick: Callable[[Message], T | None]) -> Operation[T | None]:
        """The next frame of an answer with several, as `pick` accepts it; None if it does not arrive."""
        until = self._session.now + RESEND_MAX_SECONDS
        while not isinstance(event := (yield Wait(until)), TimedOut):
            if isinstance(event, Reply) and (found := pick(event.message)) is not None:
                return found
        return None

    def _unreachable(self, since: float) -> PlatformUnreachable:
        return PlatformUnreachable(self._address, round(self._session.now - since, 1), self._name)


def answer_of(kind: type[M]) -> Callable[[Message], M | None]:
    """Accepts a message of this type; raises PlatformRefused for an Error, and ignores everything else."""

    def pick(message: Message) -> M | None:
        if isinstance(message, kind):
            return message
        if isinstance(message, cw.Error):
            raise refused(message)
        return None

    return pick


def refused(error: cw.Error) -> PlatformRefused:
    return PlatformRefused(error.code, error.text, error.request_id)
