"""What a source may speak: releases, dialects, and which of its answers are well formed. Pure."""

from candlewright.wire.errors import CandlewrightError
from gateways.numaflow.server_info import ServerInfo, version_of
from protobuf import source_superset_pb2 as source

Result = source.ReadResponse.Result

#: The first releases whose streams have handshakes; earlier ones have a ReadFn with a single request.
_FIRST_RELEASES = {"go": (0, 9, 0), "java": (0, 9, 0), "python": (0, 9, 0), "rust": (0, 1, 0)}
#: The first releases that read a list of offsets in one request. Earlier ones silently keep only the last.
_FIRST_WITH_LISTS = {**_FIRST_RELEASES, "rust": (0, 2, 0)}


class SourceRefused(CandlewrightError):
    """The source breaks the protocol: nothing is acknowledged until that is fixed."""


class SourceHalted(CandlewrightError):
    """A payload does not fit, and the settings say to stop."""


def acknowledges_lists(info: ServerInfo) -> bool:
    """Whether a request may carry several offsets: released SDKs read lists, the published dialect single offsets.

    Raises SourceRefused if the source cannot be read.
    """
    if info.protocol not in ("", "uds"):
        raise SourceRefused(f"the source listens on {info.protocol}; only unix sockets (uds) are supported")
    first, version = _FIRST_RELEASES.get(info.language), version_of(info.version)
    if first is None or version is None:
        return False
    if version < first:
        wanted = ".".join(map(str, first))
        raise SourceRefused(
            f"the source uses the {info.language} SDK {info.version}, whose streams have no handshake: "
            f"{wanted} or later is needed"
        )
    return version >= _FIRST_WITH_LISTS[info.language]


def checked(answer: source.ReadResponse) -> Result:
    """The record of an answer that does not end the batch; raises SourceRefused if a part of it is missing."""
    if not answer.HasField("result"):
        raise SourceRefused("the source sent a message with neither a result nor the end of the batch")
    result = answer.result
    if not result.offset.offset:
        raise SourceRefused("the source sent a record without an offset")
    if not result.HasField("event_time"):
        raise SourceRefused(f"the source sent a record without an event time: offset {result.offset.offset!r}")
    return result
