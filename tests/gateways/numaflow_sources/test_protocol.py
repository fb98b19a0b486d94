"""How a reader judges a source."""

import pytest

from gateways.numaflow.server_info import ServerInfo
from gateways.numaflow_sources.protocol import SourceRefused, acknowledges_lists


def info(language: str, version: str, protocol: str = "uds") -> ServerInfo:
    return ServerInfo(protocol, language, "", version)


@pytest.mark.parametrize(
    ("language", "version", "lists"),
    [
        ("go", "v0.9.0", True),
        ("go", "v0.12.0-rc1", True),
        ("java", "0.9.0", True),
        ("python", "0.9.0", True),
        ("python", "0.14.0", True),
        ("rust", "0.1.1", False),
        ("rust", "0.2.0", True),
        ("unknown", "1.0.0", False),
        ("python", "", False),
        ("python", "latest", False),
    ],
)
def test_a_list_goes_only_to_a_released_sdk_that_reads_lists(language: str, version: str, lists: bool) -> None:
    assert acknowledges_lists(info(language, version)) is lists


@pytest.mark.parametrize(
    ("language", "version"), [("go", "0.8.0"), ("python", "0.8.9"), ("java", "0.7"), ("rust", "0.0.9")]
)
def test_sdks_without_handshakes_are_refused(language: str, version: str) -> None:
    with pytest.raises(SourceRefused, match=f"{language} SDK {version}"):
        acknowledges_lists(info(language, version))


def test_only_unix_sockets_are_read() -> None:
    with pytest.raises(SourceRefused, match="tcp"):
        acknowledges_lists(info("python", "0.14.0", "tcp"))
