"""The sockets: accepted keys, incoming frames, and outgoing messages."""
