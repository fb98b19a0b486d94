"""Functions of the platform that a Kapacitor daemon runs: trades to bars, triggers, publishing points to the bus."""
