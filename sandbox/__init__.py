"""An exchange on loopback that speaks Binance's spot API, for offline development, the demo and tests."""

from sandbox.behaviour.clock import ExchangeClock
from sandbox.behaviour.faults import Fault
from sandbox.serving.server import Sandbox
from sandbox.serving.thread import SandboxThread

__all__ = ["ExchangeClock", "Fault", "Sandbox", "SandboxThread"]
