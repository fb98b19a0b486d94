"""The trigger language: SQL with MATCH_RECOGNIZE over ticks and bars, in batches and on streams."""

from cep.engine import CompiledQuery, compile_query, evaluate
from cep.limits import Limits
from cep.release import Clock, ReleaseBuffer
from cep.search import SkipFailed
from cep.stream import Events, StreamInput, StreamQuery, TriggerStream, compile_stream
from core.errors import TriggerRejected

__all__ = [
    "Clock",
    "CompiledQuery",
    "Events",
    "Limits",
    "ReleaseBuffer",
    "SkipFailed",
    "StreamInput",
    "StreamQuery",
    "TriggerRejected",
    "TriggerStream",
    "compile_query",
    "compile_stream",
    "evaluate",
]
