"""The bus on Redis Streams: calls, connections, scripts, and a server that the platform starts."""
