"""The trigger engine's library entry under the name that users import; the engine itself knows nothing of Spark."""

from candlewright_cep import evaluate

__all__ = ["evaluate"]
