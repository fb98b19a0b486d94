"""Live trades from ccxt.pro's websockets to the bus: each once, in order, with gaps repaired or reported."""
