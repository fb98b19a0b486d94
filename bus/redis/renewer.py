"""Renews a lease for the process that started this one, its holder, while that process lives and runs.

On a busy machine, a thread of a holder with much to do is late by seconds: it waits for a processor, and then for
Python's lock, whose owner waits for a processor as well. This process has nothing else to do. It runs by its path in an
isolated interpreter, without the product's packages, and takes 5 MiB.

Standard input: the orders (`Roles.renewer`), one line of JSON, then a byte for each heartbeat of the holder. Its end
means that the holder has ended, and the role is released. Standard output: a byte for each renewal.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

_HEARTBEATS, _ACKNOWLEDGEMENTS = 0, 1


class Link:
    """A connection to Redis, made again when it breaks."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._orders = orders
        self._socket: socket.socket | None = None

    def ask(self, command: str) -> bytes:
        """The first line of the reply. Raises OSError."""
        kept, self._socket = self._socket, None
        if kept is not None:
            try:
                reply = _ask(kept, command)
            except OSError:
                kept.close()
            else:
                self._socket = kept
                return reply
        made = self._connect()
        reply = _ask(made, command)
        self._socket = made
        return reply

    def _connect(self) -> socket.socket:
        orders, timeout = self._orders, self._orders["timeout_seconds"]
        if orders["path"]:
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(timeout)
            made.connect(orders["path"])
        else:
            made = socket.create_connection((orders["host"], orders["port"]), timeout)
        if orders["tls"]:
            made = _secured(made, orders["tls"], orders["host"])
        for command in orders["greetings"]:
            if not _ask(made, command).startswith(b"+"):
                made.close()
                raise ConnectionError("Redis refuses the user, the password or the database")
        return made


def _secured(made: socket.socket, options: dict[str, Any], host: str) -> socket.socket:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = options["check_hostname"]
    context.verify_mode = ssl.VerifyMode(options["verify_mode"])
    if options["certificate"] or options["key"]:
        context.load_cert_chain(options["certificate"], options["key"])
    if options["authorities"]:
        context.load_verify_locations(options["authorities"])
    return context.wrap_socket(made, server_hostname=host)


def _ask(link: socket.socket, command: str) -> bytes:
    link.sendall(command.encode("latin-1"))
    reply = b""
    while not reply.endswith(b"\r\n"):
        received = link.recv(1 << 12)
        if not received:
            raise ConnectionError("Redis closed the connection")
        reply += received
    return reply


def _is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process. Where this cannot be seen, its silence decides."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (pathlib takes 1 MiB)
            return file.read().rpartition(b")")[2].split()[0] in {b"T", b"t"}
    except OSError:
        return False


def main() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # They are the holder's, which releases its role when it has stopped.
        signal.signal(number, signal.SIG_IGN)
    os.set_blocking(_ACKNOWLEDGEMENTS, False)
    with open(_HEARTBEATS, "rb", buffering=0, closefd=False) as file:
        orders = json.loads(file.readline())
    link, holder = Link(orders), os.getppid()
    now = heard = time.monotonic()
    while True:
        due = now + orders["pause_seconds"]
        while now < due:
            if select.select([_HEARTBEATS], [], [], due - now)[0]:
                if not os.read(_HEARTBEATS, 1 << 12):
                    link.ask(orders["release"])
                    return
                heard = time.monotonic()
            now = time.monotonic()
        if now - heard > orders["silence_seconds"] or _is_stopped(holder):
            continue
        try:
            reply = link.ask(orders["renew"])
        except OSError:
            continue
        if reply.startswith(b":1"):
            # A holder that has ended is found above, and one that is late has been told before.
            with contextlib.suppress(OSError):
                os.write(_ACKNOWLEDGEMENTS, b".")
        elif reply.startswith(b":0"):
            # Another term has begun, as the holder will find.
            return


if __name__ == "__main__":
    try:
        main()
    except OSError:
        sys.exit(1)
