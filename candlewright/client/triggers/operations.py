"""The platform's operations for triggers."""

from candlewright.client.errors import InvalidTrigger, PlatformRefused, TriggerNotFound
from candlewright.client.records import Registration, TriggerInfo
from candlewright.client.session.questions import Questions, answer_of
from candlewright.client.session.session import Operation, Session, Wait
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing

#: Pauses before a request is resent: an acknowledgement waits for the pipeline.
TRIGGER_RESEND_SECONDS, TRIGGER_RESEND_MAX_SECONDS = 3.0, 6.0
#: While another list of triggers is being requested.
TURN_SECONDS = 0.01
_REGISTERED = (ing.CEPTriggerAck.REGISTERED, ing.CEPTriggerAck.ALREADY_REGISTERED)


class TriggerOperations(Questions):
    """Triggers: registered, removed, listed."""

    def __init__(
        self, session: Session, client_id: str, *, address: str, timeout_seconds: float, name: str = ""
    ) -> None:
        super().__init__(session, client_id, address=address, timeout_seconds=timeout_seconds, name=name)
        self._is_listing = False

    def add(self, request: ing.CEPTriggerRequest, timeout_seconds: float) -> Operation[Registration]:
        """Active once this returns. Raises InvalidTrigger, PlatformRefused, PlatformUnreachable."""
        trigger_id = request.trigger_id
        give_up = self._session.now + timeout_seconds
        while True:
            answer, _ = yield from self._acknowledged(request, give_up - self._session.now)
            if answer.status == ing.CEPTriggerAck.INVALID_SQL:
                raise InvalidTrigger.parse(request.sql_pattern, answer.error_message)
            if answer.status in _REGISTERED:
                warnings = tuple(filter(None, map(str.strip, answer.error_message.splitlines())))
                return Registration(trigger_id, answer.status == ing.CEPTriggerAck.REGISTERED, warnings)
            found = yield from self.all(trigger_id)
            if not found or not found[0].is_starting:
                raise PlatformRefused("ERROR", answer.error_message, trigger_id)
            # The trigger is stored, but the platform stopped waiting for the pipeline before the caller did: send it
            # again.
            if give_up - self._session.now <= TRIGGER_RESEND_SECONDS:
                raise PlatformRefused("ERROR", f"trigger {trigger_id}: {answer.error_message}", trigger_id)

    def remove(self, trigger_id: str, timeout_seconds: float) -> Operation[None]:
        """Raises TriggerNotFound, PlatformRefused, PlatformUnreachable."""
        was_there = yield from self.all(trigger_id)
        answer, sent = yield from self._acknowledged(cw.TriggerRemove(trigger_id=trigger_id), timeout_seconds)
        if answer.status in _REGISTERED:
            return
        if not was_there:
            raise TriggerNotFound(trigger_id)
        # If the answer to the first request was lost, the request may have been carried out.
        if sent == 1 or (yield from self.all(trigger_id)):
            raise PlatformRefused("ERROR", answer.error_message, trigger_id)

    def get(self, trigger_id: str) -> Operation[TriggerInfo]:
        """Raises TriggerNotFound."""
        for found in (yield from self.all(trigger_id)):
            return found
        raise TriggerNotFound(trigger_id)

    def all(self, trigger_id: str = "") -> Operation[list[TriggerInfo]]:
        """Registered and starting triggers, by id; one of them or all."""
        # An answer does not name its request, so send one at a time.
        while self._is_listing:
            yield Wait(self._session.now + TURN_SECONDS)
        self._is_listing = True
        found: dict[str, TriggerInfo] = {}
        try:
            query = cw.TriggerQuery(trigger_id=trigger_id, include_starting=True)
            while True:
                answer = yield from self._ask(query, cw.TriggerList)
                page = [TriggerInfo.from_message(each) for each in answer.triggers]
                found |= {each.trigger_id: each for each in page if trigger_id in ("", each.trigger_id)}
                last = max((each.trigger_id for each in page), default="")
                if not answer.has_more or last <= query.after_trigger_id:
                    return [found[name] for name in sorted(found)]
                query = cw.TriggerQuery(after_trigger_id=last, include_starting=True)
        finally:
            self._is_listing = False

    def _acknowledged(
        self, message: ing.CEPTriggerRequest | cw.TriggerRemove, timeout_seconds: float
    ) -> Operation[tuple[ing.CEPTriggerAck, int]]:
        """The answer, and how often the request was sent until it arrived; repeating it is harmless."""
        return self._asked(
            [message],
            answer_of(ing.CEPTriggerAck),
            timeout_seconds=timeout_seconds,
            pause=TRIGGER_RESEND_SECONDS,
            longest_pause=TRIGGER_RESEND_MAX_SECONDS,
        )
