"""A server that takes webhooks, and fails in the ways that a test requests."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass
class Receiver:
    """`answers`: how the next requests are answered, one word each; after that, with 204."""

    answers: list[str] = field(default_factory=list)
    #: (path, headers, body) of every request, and the ids of those that were accepted.
    requests: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/hook?token=s3cret"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["Receiver"]:
        """Uses the same port when it serves a second time."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", self.port, ssl_context=tls)
        await site.start()
        self.port = runner.addresses[0][1]
        self.scheme = "https" if tls else "http"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.headers), await request.text()))
        match self.answers.pop(0) if self.answers else "":
            case "slow":
                await asyncio.sleep(60)
            case "cut":
                assert request.transport is not None
                request.transport.close()
                return web.Response()
            case "429":
                return web.Response(status=429, headers={"Retry-After": "1"})
            case "redirect":
                return web.Response(status=307, headers={"Location": "/elsewhere"})
            case status if status:
                return web.Response(status=int(status))
        self.taken.append(request.headers.get("webhook-id", ""))
        return web.Response(status=204)


async def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


class Authority:
    """Signs certificates. A client that trusts `file`, for example by SSL_CERT_FILE, accepts them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.KeyUsage(
            key_cert_sign=True,
            crl_sign=False,
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        root = self._sign("tests", self._key, x509.BasicConstraints(ca=True, path_length=0), usage)
        self.file = folder / "authority.pem"
        self.file.write_bytes(root.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "localhost") -> ssl.SSLContext:
        """The server's side of TLS, with a certificate for this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = self._sign(name, key, x509.SubjectAlternativeName([x509.DNSName(name)]))
        file = self._folder / f"{name}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + signed.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(self, subject: str, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=_named("tests"),
            subject_name=_named(subject),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
        identifiers = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension in (*identifiers, *extensions):
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
