"""The trigger language: SQL with MATCH_RECOGNIZE over ticks and bars, in batches and on streams."""

from cep.engine import CompiledQuery, compile_query, evaluate
from cep.limits import Limits
from cep.search import SkipFailed
from core.errors import TriggerRejected

__all__ = ["CompiledQuery", "Limits", "SkipFailed", "TriggerRejected", "compile_query", "evaluate"]
