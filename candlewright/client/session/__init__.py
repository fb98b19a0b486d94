"""The protocol without a clock, and the sockets below it."""
