"""The platform's operations for views."""

from candlewright.client.errors import InvalidTrigger, PlatformRefused, ViewNotFound
from candlewright.client.records import RegisteredView, ViewInfo
from candlewright.client.session.questions import Questions, answer_of, fresh_id
from candlewright.client.session.session import Operation
from candlewright.client.triggers.operations import TRIGGER_RESEND_MAX_SECONDS, TRIGGER_RESEND_SECONDS
from candlewright.wire import candlewright_pb2 as cw


class ViewOperations(Questions):
    """Views: registered, removed, listed."""

    def add(self, name: str, sql: str, *, replace: bool, timeout_seconds: float) -> Operation[RegisteredView]:
        """Stored once this returns. Raises InvalidTrigger, PlatformRefused, PlatformUnreachable."""
        request = cw.ViewRequest(request_id=fresh_id("view", self._name), name=name, sql=sql, replace=replace)
        answer, _ = yield from self._changed(request, timeout_seconds)
        if answer.status == cw.ViewAck.INVALID_SQL:
            raise InvalidTrigger.parse(sql, answer.text)
        if answer.status not in (cw.ViewAck.REGISTERED, cw.ViewAck.ALREADY_REGISTERED):
            raise _refused(answer)
        is_new = answer.status == cw.ViewAck.REGISTERED
        return RegisteredView(answer.name, answer.version, is_new, tuple(answer.restarted), tuple(answer.warnings))

    def remove(self, name: str, timeout_seconds: float) -> Operation[None]:
        """Raises ViewNotFound, PlatformRefused (IN_USE), PlatformUnreachable."""
        request = cw.ViewRemove(request_id=fresh_id("view", self._name), name=name)
        answer, sent = yield from self._changed(request, timeout_seconds)
        if answer.status == cw.ViewAck.NOT_FOUND:
            # If the answer to the first request was lost, the request has been carried out.
            if sent == 1:
                raise ViewNotFound(name)
        elif answer.status != cw.ViewAck.REMOVED:
            raise _refused(answer)

    def get(self, name: str) -> Operation[ViewInfo]:
        """Raises ViewNotFound."""
        for found in (yield from self.all(name)):
            return found
        raise ViewNotFound(name)

    def all(self, name: str = "", *, built_in: bool = False) -> Operation[list[ViewInfo]]:
        """By name; one of them or all registered ones, or all built-in ones."""
        query = cw.ViewQuery(request_id=fresh_id("views", self._name), name=name, built_in=built_in)
        answer = yield from self._ask(query, cw.ViewList)
        return [ViewInfo.from_message(each) for each in answer.views]

    def _changed(
        self, message: cw.ViewRequest | cw.ViewRemove, timeout_seconds: float
    ) -> Operation[tuple[cw.ViewAck, int]]:
        """The answer, and how often the request was sent until it arrived."""
        return self._asked(
            [message],
            answer_of(cw.ViewAck),
            timeout_seconds=timeout_seconds,
            pause=TRIGGER_RESEND_SECONDS,
            longest_pause=TRIGGER_RESEND_MAX_SECONDS,
        )


def _refused(answer: cw.ViewAck) -> PlatformRefused:
    return PlatformRefused(cw.ViewAck.ViewStatus.Name(answer.status), answer.text, answer.request_id)
