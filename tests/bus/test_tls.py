"""A bus over TLS, as `bus.url = rediss://…` names it: a TLS end in front of the server."""

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bus.api import Record
from bus.connect import connect
from bus.renewing import Renewer
from bus.roles import BROKER, Roles, Term
from candlewright.wire.errors import BusError, ConfigurationError
from core.settings import BusSettings
from gateways.rocketmq.door.certificate import key_and_certificate
from tests.faults.harness import until

PATIENCE_SECONDS = 30.0


class TlsEnd:
    """Decrypts connections, and forwards them to a server on loopback."""

    def __init__(self, folder: Path, port: int) -> None:
        key_and_certificate(folder, "", "", hosts=("127.0.0.1",))
        self.certificate = folder / "rocketmq.crt"
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, folder / "rocketmq.key")
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(10)
            with (
                self._context.wrap_socket(client, server_side=True) as inner,
                socket.create_connection(self._target) as server,
            ):
                while True:
                    waiting = [inner] if inner.pending() else select.select([inner, server], [], [])[0]
                    for source in waiting:
                        data = source.recv(1 << 16)
                        if not data:
                            return
                        (server if source is inner else inner).sendall(data)


@pytest.fixture
def tls(redis_url: str, tmp_path: Path) -> Iterator[TlsEnd]:
    port = urlsplit(redis_url).port
    assert port is not None
    with closing(TlsEnd(tmp_path, port)) as end:
        yield end


def url(tls: TlsEnd, redis_url: str, **options: str) -> str:
    password = urlsplit(redis_url).password
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"rediss://:{password}@127.0.0.1:{tls.port}/0?{query}"


def test_records_pass_over_tls(tls: TlsEnd, redis_url: str) -> None:
    address = url(tls, redis_url, ssl_ca_certs=str(tls.certificate))
    with closing(connect(BusSettings(url=address))) as bus:
        bus.create_topic("t", 1)
        bus.publish("t", [Record(b"v", key=b"k")])
        assert [record.value for record in bus.read("t", 0, 0)] == [b"v"]


@pytest.mark.processes
def test_a_lease_is_renewed_over_tls_by_a_process_that_checks_the_certificate_as_well(
    tls: TlsEnd, redis_url: str
) -> None:
    with closing(Roles(redis_url)) as plain:
        term = plain.acquire(BROKER, "one", 60)
        assert term is not None
    trusting, strange = url(tls, redis_url, ssl_ca_certs=str(tls.certificate)), url(tls, redis_url)
    with closing(Roles(trusting)) as roles, closing(renewer_of(roles, term)) as renewer:
        until(renewer.beat, PATIENCE_SECONDS, "a renewal")
        with closing(Roles(strange)) as others, closing(renewer_of(others, term)) as other:
            assert not any(other.beat() or threading.Event().wait(0.1) for _ in range(20))


def renewer_of(roles: Roles, term: Term) -> Renewer:
    made = roles.renewer(term, 1)
    assert made is not None
    return made


def test_options_of_tls_that_only_redis_py_knows_leave_renewing_to_the_holder(tls: TlsEnd, redis_url: str) -> None:
    with closing(Roles(url(tls, redis_url, ssl_ciphers="ECDHE"))) as roles:
        assert roles.renewer(Term(BROKER, 1), 1) is None


def test_a_certificate_that_is_not_trusted_is_refused(tls: TlsEnd, redis_url: str) -> None:
    with (
        closing(connect(BusSettings(url=url(tls, redis_url)), retry_seconds=0)) as bus,
        pytest.raises(BusError, match="certificate"),
    ):
        bus.topics()


def test_plain_words_get_nothing_from_a_tls_port(tls: TlsEnd, redis_url: str) -> None:
    plain = url(tls, redis_url).replace("rediss:", "redis:")
    with closing(connect(BusSettings(url=plain), retry_seconds=0)) as bus, pytest.raises(BusError):
        bus.topics()


def test_a_certificate_file_that_does_not_exist_is_named_at_once(tls: TlsEnd, redis_url: str) -> None:
    """Each connection used to fail on it, so a part waited for the bus as if it were down."""
    address = url(tls, redis_url, ssl_ca_certs="/missing/ca.pem")
    with pytest.raises(ConfigurationError, match=r"bus\.url: ssl_ca_certs: the file /missing/ca\.pem does not exist"):
        connect(BusSettings(url=address))
