"""Roles: duties held by only one process at a time.

A process holds a role for a term: a lease on the bus that it renews. Each term has the next epoch. The holder writes
over `Term.address`, and every script of the bus refuses an outdated epoch in the same step as the write. A holder that
was stopped or cut off therefore changes nothing when it comes back: its writes raise RoleLost.

A process that finds the role taken stands by, and takes over once the lease has run out. It does so immediately if the
holder left, was killed, or had the same seat, because a supervisor restarts a part only after the previous process has
ended.
"""

import contextlib
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bus.redis.store import Fence, Store, pack, script
from bus.renewing import Renewer
from candlewright.wire.errors import BusError, BusUnavailable, CandlewrightError, ConfigurationError, RoleLost
from core.background import start_thread
from core.log import get_logger

__all__ = ["ALERTS", "BROKER", "DRIVER", "REGISTRY", "Keeper", "RoleState", "Roles", "Term", "say_lost", "say_standby"]

ALERTS = "alerts"
BROKER = "broker"
DRIVER = "driver"
#: The relay's exclusive duties: registered triggers, live requests of subscribers, and marking finals as delivered.
REGISTRY = "registry"

#: Renewals per lease; a standby checks four times as often.
_RENEWALS = 5
_LOOKS = 20
#: A holder whose loop has not moved for this long (s) hangs.
HANG_SECONDS = 30.0

log = get_logger()


@dataclass(frozen=True, slots=True)
class Term:
    role: str
    epoch: int

    @classmethod
    def of(cls, url: str) -> "Term | None":
        """The term that an address names, under which a thread, a task or a query writes."""
        fence = Fence.of(url)
        return None if fence is None else cls(*fence)

    def address(self, url: str) -> str:
        """The address of the same bus: writes over it are refused once this term is over."""
        return f"{url.partition('#')[0]}#{self.role}={self.epoch}"


@dataclass(frozen=True, slots=True)
class RoleState:
    """`holder` is empty between two terms. `epoch`: of the last term that began."""

    epoch: int
    holder: str
    standbys: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"holder": self.holder or None, "epoch": self.epoch, "standbys": list(self.standbys)}


class HolderHangs(CandlewrightError):
    def __init__(self, role: str, seconds: float) -> None:
        super().__init__(f"the holder of the role {role} hangs: its loop has not moved for {seconds:g} s")


class Roles:
    """The calls to the bus; each raises BusError or, once the bus has been down for a second, BusUnavailable."""

    def __init__(self, url: str, *, retry_seconds: float = 1.0, timeout_seconds: float = 2.0) -> None:
        self._store = Store(url.partition("#")[0], retry_seconds=retry_seconds, timeout_seconds=timeout_seconds)

    def acquire(self, role: str, holder: str, lease_seconds: float, *, seat: str = "") -> Term | None:
        """The term that begins now, or None while another process holds the role; `holder` is then a standby."""
        milliseconds = round(lease_seconds * 1_000)
        epoch, is_mine = self._store.run("role", "take", role, holder, seat, milliseconds)
        return Term(role, int(epoch)) if is_mine else None

    def renew(self, term: Term, lease_seconds: float) -> bool:
        """False once another term has begun."""
        return bool(self._store.run("role", "keep", term.role, term.epoch, round(lease_seconds * 1_000)))

    def renewer(self, term: Term, lease_seconds: float) -> Renewer | None:
        """What renews it in place of this process, or None where only this process can connect."""
        connecting = self._store.connecting()
        if connecting is None:
            return None
        source, milliseconds = script("role").source, round(lease_seconds * 1_000)
        renew = pack(("EVAL", source, 0, "keep", term.role, term.epoch, milliseconds))
        release = pack(("EVAL", source, 0, "leave", term.role, term.epoch))
        return Renewer(
            {
                **connecting,
                "renew": renew.decode("latin-1"),
                "release": release.decode("latin-1"),
                "pause_seconds": lease_seconds / _RENEWALS / 2,
                "silence_seconds": lease_seconds / 2,
            }
        )

    def check(self, term: Term) -> None:
        """Raises RoleLost once another term has begun."""
        state = self.all().get(term.role)
        if state is None or state.epoch != term.epoch:
            raise RoleLost(term.role, term.epoch, 0 if state is None else state.epoch)

    def release(self, term: Term) -> None:
        self._store.run("role", "leave", term.role, term.epoch)

    def withdraw(self, role: str, holder: str) -> None:
        """No longer a standby."""
        self._store.run("role", "withdraw", role, holder)

    def all(self) -> dict[str, RoleState]:
        """The state of every role that was ever held."""
        return {
            name.decode(): RoleState(int(epoch), holder.decode(), tuple(sorted(each.decode() for each in standbys)))
            for name, epoch, holder, standbys in self._store.run("roles")
        }

    def close(self) -> None:
        self._store.close()


def say_standby() -> None:
    """For users who started a part by hand."""
    with contextlib.suppress(OSError):
        sys.stdout.write("standby\n")
        sys.stdout.flush()


def say_lost(error: RoleLost) -> None:
    """The part ends, although nothing has failed."""
    log.warning("role_lost", **error.fields)


def _holder() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(2)}"


@dataclass(kw_only=True, slots=True)
class Keeper:
    """A process's handle on a role: `wait` until it is ours, and keep it until `close`.

    `on_lost` is called once, from a thread, when another term has begun. While the bus cannot be reached, the term
    continues: no other process can begin one, and nothing can be written.

    The lease is renewed in a thread, which runs even if the holder's own loop hangs. Such a holder releases the role,
    and its process ends.
    """

    roles: Roles
    role: str
    lease_seconds: float
    seat: str = ""
    on_lost: Callable[[RoleLost], object] = lambda _: None
    #: When the holder's loop last moved, in any unit; None while it cannot be judged.
    moved_at: Callable[[], float | None] = lambda: None
    hang_seconds: float = HANG_SECONDS
    holder: str = field(default_factory=_holder)
    term: Term | None = None
    #: Whether another process has been seen holding the role.
    is_standby: bool = False
    #: Whether the last renewal failed to reach the bus: another term may have begun.
    is_cut_off: bool = False
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def of(cls, url: str, role: str, lease_seconds: float, *, seat: str = "") -> "Keeper":
        """Raises ConfigurationError for a url that cannot be a bus's."""
        try:
            # A server that hangs must not keep a holder from renewing in time once it continues.
            return cls(
                roles=Roles(url, retry_seconds=lease_seconds / _RENEWALS),
                role=role,
                lease_seconds=lease_seconds,
                seat=seat,
            )
        except ValueError as error:
            raise ConfigurationError(f"bus.url: {error}") from error

    def wait(self, stopping: threading.Event, on_standby: Callable[[], object] = lambda: None) -> Term | None:
        """Our term, or None if `stopping` was set first. `on_standby`: called when we must wait."""
        pause = 0.0
        while not stopping.wait(pause):
            try:
                term = self.roles.acquire(self.role, self.holder, self.lease_seconds, seat=self.seat)
            except BusUnavailable as error:
                log.warning("role_not_reached", role=self.role, error=str(error))
                # The holder could not renew its lease either, and gets time to do so.
                pause = self.lease_seconds if self.is_standby else self.lease_seconds / _LOOKS
                continue
            if term is not None:
                return self._began(term)
            if not self.is_standby:
                self.is_standby = True
                log.info("standby", role=self.role)
                on_standby()
            pause = self.lease_seconds / _LOOKS
        return None

    def status(self) -> Mapping[str, Any]:
        return {"name": self.role, "epoch": None if self.term is None else self.term.epoch, "standby": self.is_standby}

    def close(self) -> None:
        """Release the role to a standby."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self.term is None:
                self.roles.withdraw(self.role, self.holder)
            else:
                self.roles.release(self.term)
        except BusError as error:
            log.warning("role_not_released", role=self.role, error=str(error))
        self.roles.close()

    def _began(self, term: Term) -> Term:
        self.term, self.is_standby = term, False
        self._thread = start_thread(f"role-{self.role}", self._keep)
        log.info("role_taken", role=self.role, epoch=term.epoch)
        return term

    def _keep(self) -> None:
        term = self.term
        assert term is not None
        renewer = self.roles.renewer(term, self.lease_seconds)
        try:
            pause, moved_at, unmoved = 0.0, None, 0
            while not self._closing.wait(pause):
                pause = self.lease_seconds / _RENEWALS
                # Counted by rounds of this thread, so that a process that was stopped does not hang when it continues.
                before, moved_at = moved_at, self.moved_at()
                unmoved = unmoved + 1 if moved_at is not None and moved_at == before else 0
                if unmoved * pause >= self.hang_seconds:
                    raise HolderHangs(self.role, self.hang_seconds)
                if renewer is not None and renewer.beat():
                    self.is_cut_off = False
                elif not self._renew(term):
                    newest = self.roles.all().get(self.role)
                    self.on_lost(RoleLost(self.role, term.epoch, newest.epoch if newest else 0))
                    return
        finally:
            if renewer is not None:
                renewer.close()

    def _renew(self, term: Term) -> bool:
        """False once another term has begun."""
        try:
            is_ours = self.roles.renew(term, self.lease_seconds)
        except BusUnavailable as error:
            self.is_cut_off = True
            log.warning("role_not_renewed", role=self.role, error=str(error))
            return True
        self.is_cut_off = False
        return is_ours
