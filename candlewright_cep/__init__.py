"""The trigger language: SQL with MATCH_RECOGNIZE over ticks and bars, in batches and on streams."""

from typing import TYPE_CHECKING, Any

from candlewright_cep.diagnosis import Diagnosis, diagnose
from candlewright_cep.engine import CompiledQuery, compile_query, compile_view, evaluate, view_name
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.matching.search import SkipFailed
from candlewright_cep.spark import install, match_recognize
from candlewright_cep.streaming.inputs import StreamInput
from candlewright_cep.streaming.joined import JoinedStream
from candlewright_cep.streaming.query import StreamQuery
from candlewright_cep.streaming.rows.release import Clock, ReleaseBuffer
from candlewright_cep.streaming.stream import Events, TriggerStream, compile_stream
from candlewright_cep.syntax.layout import formatted

if TYPE_CHECKING:
    from candlewright_cep.tracing.explanation import Explanation, explain

__all__ = [
    "Clock",
    "CompiledQuery",
    "Diagnosis",
    "Events",
    "Explanation",
    "JoinedStream",
    "Limits",
    "ReleaseBuffer",
    "SkipFailed",
    "StreamInput",
    "StreamQuery",
    "TriggerRejected",
    "TriggerStream",
    "compile_query",
    "compile_stream",
    "compile_view",
    "diagnose",
    "evaluate",
    "explain",
    "formatted",
    "install",
    "match_recognize",
    "view_name",
]


def __getattr__(name: str) -> Any:
    """Import the explanation functions on first access."""
    if name not in ("Explanation", "explain"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from candlewright_cep.tracing import explanation

    return getattr(explanation, name)
