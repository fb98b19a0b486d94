"""Live trades: from ccxt.pro's websockets to the bus, each once, in order, with what was missed repaired or named."""
