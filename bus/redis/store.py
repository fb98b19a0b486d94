"""Access to Redis: connections, scripts, and calls that are repeated if the connection breaks."""

import hashlib
import os
import re
import secrets
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import redis
from redis.connection import AbstractConnection, Connection, parse_url
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from bus.limits import REFUSALS, RETRIES
from bus.redis import permissions
from bus.redis.pending import PendingCall
from bus.redis.replies import ReplyParser
from candlewright.wire.errors import BusError, BusRefusing, BusUnavailable, RoleLost
from core.log import get_logger

log = get_logger()

#: The most that is sent without waiting for room: it usually fits into the buffer of an idle socket.
_AT_ONCE_BYTES = 1 << 18
#: Options of an address that name files: without them every connection fails, as if the server were down.
_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}

#: Options of TLS that `renewer.py` knows.
_TLS = {*_FILES, "ssl_cert_reqs", "ssl_check_hostname"}

Argument = bytes | str | int
Result = TypeVar("Result")

#: Error replies of a server that will recover, and their causes.
_REFUSALS = {
    "BUSY": "Redis is busy with a script",
    "CLUSTERDOWN": "the Redis cluster is down",
    "LOADING": "Redis is loading its data",
    "MASTERDOWN": "Redis has lost its primary",
    "MISCONF": "Redis cannot write its log to the disk",
    "NOPERM": "the user of bus.url may not do everything that the platform does",
    "NOREPLICAS": "Redis has fewer replicas in step than min-replicas-to-write",
    "OOM": "Redis has reached maxmemory",
    "READONLY": "Redis is a replica that does not accept writes",
    "TRYAGAIN": "Redis is moving its keys",
    "UNKILLABLE": "Redis is busy with a script",
    "WRONGPASS": "Redis refuses the user or password of bus.url",
}
#: Refusals that a person must resolve. They end a part that was never accepted; one that was accepted before waits.
_SHUT_OUT = {"NOPERM", "WRONGPASS"}
#: Classes of redis-py that leave the code out of their text.
_CODES: dict[type[redis.RedisError], str] = {
    redis.AuthenticationError: "WRONGPASS",
    redis.exceptions.AuthenticationWrongNumberOfArgsError: "WRONGPASS",
    redis.BusyLoadingError: "LOADING",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.OutOfMemoryError: "OOM",
    redis.ReadOnlyError: "READONLY",
    redis.exceptions.TryAgainError: "TRYAGAIN",
}
#: At the start of an error, or, where a script of Redis 6.2 met it, after a dash.
_CODE = re.compile(rf"(?:^|\s-)({'|'.join(_REFUSALS)})\b")
#: The NOPERM of a command within a script.
_FORBIDDEN = "The user executing the script can't"

#: The answer of `lua/_fence.lua`.
_FENCED = re.compile(r"FENCED cw:role:(\S+) cw:epoch:(\d+) (\d+)")

#: A line `--@ name` of a script stands for the file `_name.lua`, which several scripts share.
_SHARED = re.compile(rb"^--@ (\w+)\n", re.MULTILINE)


def _lua(name: str) -> bytes:
    text = resources.files("bus.redis").joinpath("lua", f"{name}.lua").read_bytes()
    return _SHARED.sub(lambda found: _lua(f"_{found[1].decode()}"), text)


class Script:
    def __init__(self, name: str) -> None:
        self.source = _lua("_fence") + _lua(name)
        self.sha = hashlib.sha1(self.source, usedforsecurity=False).hexdigest().encode()


script = cache(Script)


def pack(arguments: Sequence[Argument]) -> bytes:
    """One command in Redis's wire format."""
    return b"*%d\r\n%b" % (len(arguments), bulks(*arguments))


def bulks(*arguments: Argument) -> bytes:
    """Arguments in Redis's wire format."""
    parts = []
    for argument in arguments:
        if isinstance(argument, str):
            argument = argument.encode()
        elif isinstance(argument, int):
            argument = b"%d" % argument
        parts.append(b"$%d\r\n%b\r\n" % (len(argument), argument))
    return b"".join(parts)


_LOOK = pack(("INFO", "server")) + pack(("GET", "cw:life"))


def _begin_life() -> bytes:
    return pack(("EVAL", script("life").source, 0, secrets.token_hex(6)))


class Fence(NamedTuple):
    """The epoch of a role under which a store writes: its scripts refuse to run once a later one has begun."""

    role: str
    epoch: int

    @classmethod
    def of(cls, url: str) -> "Fence | None":
        """The fence of an address with one (`redis://host:6379/0#driver=7`). Raises ValueError."""
        role, _, epoch = url.partition("#")[2].partition("=")
        return cls(role, int(epoch)) if role else None

    @property
    def key(self) -> str:
        return f"cw:role:{self.role}"


class Store:
    """Runs commands, each call on a separate connection; safe for threads and after a fork.

    A call that meets a broken connection, or a server that refuses for now, is repeated for `retry_seconds`; then it
    raises BusUnavailable or BusRefusing. Every command given here must therefore be idempotent. A refused user or
    password is repeated only by a store that was accepted before, because it may have been changed meanwhile.

    At maxmemory and similar errors, a script either runs completely or is refused, because Redis checks only a script's
    first write. If `url` names a fence, scripts and `write` raise RoleLost once its epoch is over.
    """

    def __init__(self, url: str, *, retry_seconds: float, timeout_seconds: float) -> None:
        self.fence = Fence.of(url)
        keys = () if self.fence is None else (self.fence.key, f"cw:epoch:{self.fence.epoch}")
        #: The number of a script's keys, and the keys.
        self._keys = bulks(len(keys), *keys)
        self._key_count = len(keys)
        #: Scripts that have run here, which the server knows then.
        self._known: set[str] = set()
        #: Whether a call has succeeded: only then is a refused user or password waited for.
        self._was_accepted = False
        self._options: dict[str, Any] = dict(parse_url(url.partition("#")[0]))  # type: ignore[no-untyped-call]
        for option in _FILES & self._options.keys():
            if not Path(self._options[option]).is_file():
                raise ValueError(f"{option}: the file {self._options[option]} does not exist")
        self._connection_class: type[AbstractConnection] = self._options.pop("connection_class", Connection)
        self._options.update(
            parser_class=ReplyParser,
            protocol=2,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=min(5.0, timeout_seconds),
            socket_keepalive=True,
            redis_connect_func=self._greet,
        )
        if issubclass(self._connection_class, redis.UnixDomainSocketConnection):
            del self._options["socket_keepalive"]
        self.timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._pid = os.getpid()
        self._idle: list[AbstractConnection] = []
        self._all: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()
        self._ungreeted: weakref.WeakSet[AbstractConnection] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._is_closed = False

    def connecting(self) -> dict[str, Any] | None:
        """How a program without redis-py connects (`renewer.py`); None if the URL has an option that only redis-py
        knows.
        """
        if any(name.startswith("ssl_") and name not in _TLS for name in self._options):
            return None
        options = self._connection_class(**self._options)
        user, password = self._options.get("username"), self._options.get("password")
        greetings = [("AUTH", *([user] if user else []), password or "")] if user or password else []
        if database := self._options.get("db"):
            greetings.append(("SELECT", str(database)))
        tls = None
        if isinstance(options, redis.SSLConnection):
            tls = {
                "authorities": options.ca_certs,
                "certificate": options.certfile,
                "key": options.keyfile,
                "check_hostname": options.check_hostname,
                "verify_mode": int(options.cert_reqs),
            }
        return {
            "path": self._options.get("path"),
            "host": getattr(options, "host", None),
            "port": getattr(options, "port", None),
            "tls": tls,
            "greetings": [pack(each).decode("latin-1") for each in greetings],
            "timeout_seconds": self.timeout_seconds,
        }

    def call(self, *arguments: Argument) -> Any:
        """The reply to one command. Raises BusError for an error reply, BusUnavailable."""
        packed = pack(arguments)
        return self.repeat(lambda: _checked(self._exchange(packed, 1)[0]))

    def calls(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """The replies to several commands sent together; error replies are raised."""
        return self.packed_calls(b"".join(map(pack, commands)), len(commands))

    def packed_calls(self, packed: bytes, count: int) -> list[Any]:
        """`calls` of `count` commands in wire format."""
        return self.repeat(lambda: [_checked(reply) for reply in self._exchange(packed, count)])

    def write(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """`calls` of commands that change something: in one step under a fence."""
        if self.fence is None:
            return self.calls(commands)
        replies: list[Any] = self.run("commands", *(part for each in commands for part in (len(each), *each)))
        return replies

    def run(self, name: str, *arguments: Argument) -> Any:
        """The reply of a script of `bus/redis/lua`."""
        return self.run_packed(name, len(arguments), bulks(*arguments))

    def run_packed(self, name: str, count: int, arguments: bytes) -> Any:
        """`run` with `count` arguments in wire format already."""
        chosen = script(name)
        start = b"*%d\r\n" % (count + 3 + self._key_count)
        by_sha = self.pack_script(name, count, arguments)

        def attempt() -> Any:
            try:
                return _checked(self._exchange(by_sha, 1)[0])
            except redis.exceptions.NoScriptError:
                # A restarted server has no scripts; EVAL makes it cache this one.
                by_source = b"$4\r\nEVAL\r\n$%d\r\n%b\r\n" % (len(chosen.source), chosen.source)
                return _checked(self._exchange(start + by_source + self._keys + arguments, 1)[0])

        reply = self.repeat(attempt)
        self._known.add(name)
        return reply

    def pack_script(self, name: str, count: int, arguments: bytes) -> bytes:
        """The run of a script that the server knows, with `count` arguments in wire format already."""
        start = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n" % (count + 3 + self._key_count, script(name).sha)
        return start + self._keys + arguments

    def begin_script(self, pending: PendingCall, name: str, count: int, *, arguments: bytes) -> bool:
        """`begin` with a script; False also where the server may not know it yet."""
        return name in self._known and self.begin(pending, self.pack_script(name, count, arguments))

    def begin(self, pending: PendingCall, packed: bytes) -> bool:
        """Send commands without waiting; `pending` gets the answer.

        False if that is not possible immediately: then nothing has run that could not be repeated.
        """
        if len(packed) > _AT_ONCE_BYTES or not self._idle:
            return False
        connection = self._take()
        wire = connection._sock
        # The descriptor is used directly. It is non-blocking, because redis-py gives its sockets a timeout. TLS is
        # excluded, because one message may need several reads and writes.
        if not isinstance(wire, socket.socket) or isinstance(wire, ssl.SSLSocket):
            self._idle.append(connection)
            return False

        def give_back(is_sound: bool) -> None:
            if is_sound:
                self._idle.append(connection)
            else:
                connection.disconnect()

        try:
            sent = os.write(wire.fileno(), packed)
        except OSError:
            sent = 0
        if sent < len(packed):
            # Redis does not run a command before it has received all of it.
            give_back(False)
            return False
        pending.start(wire.fileno(), self.timeout_seconds, give_back)
        return True

    def forbids(self) -> str:
        """Why the server rejects the user in the URL, or which permissions that user lacks; empty if everything is
        permitted, or if the server does not answer.
        """
        try:
            replies = self._ask_for_permissions()
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
            return f"Redis refuses its user or password: {str(error).rstrip('.')}"
        except redis.RedisError:
            return ""
        return permissions.describe(replies)

    def _ask_for_permissions(self) -> list[Any]:
        """The replies to `permissions.CALLS` in a transaction that is never carried out."""
        connection = self._take()
        try:
            connection.send_packed_command([pack(("MULTI",))], check_health=False)  # type: ignore[no-untyped-call]
            connection.read_response()  # type: ignore[no-untyped-call]
            queued = b"".join(map(pack, permissions.CALLS))
            connection.send_packed_command([queued], check_health=False)  # type: ignore[no-untyped-call]
            return _replies(connection, len(permissions.CALLS))
        finally:
            # Redis then forgets the transaction.
            connection.disconnect()  # type: ignore[no-untyped-call]

    def refusal(self) -> str:
        """Why the server currently refuses writes, or an empty string. Raises BusError, BusUnavailable."""
        try:
            # Checked as a write, but with XX it changes nothing, so Redis does not wait for the disk.
            _checked(self._exchange(pack(("SET", "cw:probe", "", "XX")), 1)[0])
        except redis.RedisError as error:
            if code := _refusal(error):
                return str(_refusing(code, error))
            raise (BusUnavailable if _is_passing(error) else BusError)(f"the bus does not answer: {error}") from error
        return ""

    def repeat(self, attempt: Callable[[], Result]) -> Result:
        try:
            try:
                return self._note_success(attempt())
            except redis.RedisError as error:
                if not self._may_pass(error):
                    raise
                if not _refusal(error):
                    self._drop_idle()
            retrying = Retrying(
                stop=stop_after_delay(self._retry_seconds),
                wait=wait_random_exponential(multiplier=0.05, max=1.0),
                retry=retry_if_exception(self._may_pass),
                before_sleep=_count_retry,
                reraise=True,
            )
            return self._note_success(retrying(attempt))
        except redis.RedisError as error:
            if (fence := _FENCED.search(str(error))) is not None:
                raise RoleLost(fence[1], int(fence[2]), int(fence[3])) from error
            if (code := _refusal(error)) and self._may_pass(error):
                raise _refusing(code, error) from error
            if _is_passing(error) and not code:
                raise BusUnavailable(f"the bus does not answer: {error}") from error
            raise BusError(f"the bus refused: {error}") from error

    def _note_success(self, result: Result) -> Result:
        self._was_accepted = True
        return result

    def _may_pass(self, error: BaseException) -> bool:
        return _is_passing(error) and (self._was_accepted or _refusal(error) not in _SHUT_OUT)

    def close(self) -> None:
        """Close all connections; a call that waits on another thread ends with BusError."""
        self._is_closed = True
        for connection in list(self._all):
            connection.disconnect()  # type: ignore[no-untyped-call]
        self._idle.clear()

    def _exchange(self, packed: bytes, replies: int) -> list[Any]:
        connection = self._take()
        try:
            connection.send_packed_command([packed], check_health=False)  # type: ignore[no-untyped-call]
            received = _replies(connection, replies)
        except BaseException:
            connection.disconnect()  # type: ignore[no-untyped-call]
            raise
        if connection in self._ungreeted:
            self._ungreeted.discard(connection)
            connection.disconnect()  # type: ignore[no-untyped-call]
        self._idle.append(connection)
        if self._is_closed:
            # Closed meanwhile: this call may have reconnected.
            self._drop_idle()
        return received

    def _greet(self, connection: AbstractConnection) -> None:
        """The first command of a new connection: an earlier connection cannot have met this run of the server."""
        connection.on_connect()  # type: ignore[no-untyped-call]
        connection.send_packed_command([_LOOK], check_health=False)  # type: ignore[no-untyped-call]
        information, life = connection.read_response(), connection.read_response()  # type: ignore[no-untyped-call]
        run = re.search(rb"run_id:(\w+)", information)
        # The first 12 letters are the life.
        if run is None or (life is not None and life[12:] == run[1]):
            return
        connection.send_packed_command([_begin_life()], check_health=False)  # type: ignore[no-untyped-call]
        try:
            connection.read_response()  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            if not _refusal(error):
                raise
            # It currently refuses writes, and therefore records: this connection is used once.
            self._ungreeted.add(connection)

    def _take(self) -> AbstractConnection:
        if self._is_closed:
            raise BusError("the bus is closed")
        if self._pid != os.getpid():
            # The sockets belong to the parent.
            self._pid, self._idle, self._all = os.getpid(), [], weakref.WeakSet()
            self._lock, self._ungreeted = threading.Lock(), weakref.WeakSet()
        try:
            return self._idle.pop()
        except IndexError:
            connection = self._connection_class(**self._options)
            with self._lock:
                self._all.add(connection)
            return connection

    def _drop_idle(self) -> None:
        """After one connection breaks, the others are probably broken too."""
        while self._idle:
            try:
                self._idle.pop().disconnect()  # type: ignore[no-untyped-call]
            except IndexError:
                return


def _replies(connection: AbstractConnection, count: int) -> list[Any]:
    """Errors among them."""
    received = []
    for _ in range(count):
        try:
            received.append(connection.read_response())  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            received.append(error)
    return received


def _checked(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _is_passing(error: BaseException) -> bool:
    return isinstance(error, redis.ConnectionError | redis.TimeoutError) or bool(_refusal(error))


def _refusal(error: BaseException | None) -> str:
    """The code with which a reachable server temporarily refuses, or an empty string."""
    if error is None:
        return ""
    if isinstance(error, redis.ResponseError):
        if found := _CODE.search(str(error)):
            return found[1]
        if _FORBIDDEN in str(error):
            return "NOPERM"
    return _CODES.get(type(error), "")  # type: ignore[arg-type]


def _refusing(code: str, error: redis.RedisError) -> BusRefusing:
    reason = f": {error}" if isinstance(error, redis.exceptions.NoPermissionError) else ""
    return BusRefusing(code, _REFUSALS[code] + reason, what="calls" if code in _SHUT_OUT else "writes")


def _count_retry(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    if code := _refusal(error):
        REFUSALS.labels(code).inc()
    else:
        RETRIES.inc()
    if state.attempt_number == 1:
        event = "bus_refuses" if code else "bus_connection_lost"
        log.warning(event, error=str(error), at=time.time())
