"""An exchange on loopback that speaks Binance's spot API, for offline development, the demo and tests."""

from sandbox.clock import ExchangeClock
from sandbox.faults import Fault
from sandbox.server import Sandbox
from sandbox.thread import SandboxThread

__all__ = ["ExchangeClock", "Fault", "Sandbox", "SandboxThread"]
