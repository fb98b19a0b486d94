"""A self-signed certificate: stock clients only speak TLS, and trust any certificate."""

import datetime
import os
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from candlewright.wire.errors import ConfigurationError

_DAYS = 3_650


def key_and_certificate(folder: Path, cert_file: str, key_file: str, *, hosts: tuple[str, ...]) -> tuple[bytes, bytes]:
    """PEM texts of the named files, else of those in `folder`, which are made (mode 0600) if missing.

    Raises ConfigurationError if only one file is named, or one cannot be read.
    """
    if bool(cert_file) != bool(key_file):
        raise ConfigurationError("gateways.rocketmq: set both tls_cert and tls_key, or neither")
    if cert_file:
        try:
            return Path(key_file).read_bytes(), Path(cert_file).read_bytes()
        except OSError as error:
            raise ConfigurationError(f"gateways.rocketmq: {error.filename}: {error.strerror}") from error
    key, certificate = folder / "rocketmq.key", folder / "rocketmq.crt"
    if not (key.is_file() and certificate.is_file()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key_text, certificate_text = _make(hosts)
        _write(certificate, certificate_text)
        # The key is written last: its presence means that the pair is complete.
        _write(key, key_text)
    return key.read_bytes(), certificate.read_bytes()


def _make(hosts: tuple[str, ...]) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "candlewright")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in dict.fromkeys(hosts)]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        .sign(key, hashes.SHA256())
    )
    return (
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(serialization.Encoding.PEM),
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)
