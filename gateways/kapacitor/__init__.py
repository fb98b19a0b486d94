"""Functions of ours that a Kapacitor daemon runs: trades to bars, triggers, points onto the bus."""
