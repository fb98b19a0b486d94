"""The process in which Spark plans a streaming source; it answers Spark before it loads PySpark.

Spark ends the query unless this process connects within ten seconds, which no setting changes, and on a busy machine
PySpark may take that long to load. Once connected, Spark waits. `worker_python` starts this module instead of
PySpark's.
"""

import os
import socket
import struct
from io import BufferedRWPair
from typing import IO, cast

_LENGTH = struct.Struct("!i")
_OK = b"ok"


def connect_back() -> tuple[socket.socket, BufferedRWPair]:
    """Connect to the Spark named in the environment variables, and send the secret and this process's id.

    Raises OSError, also if the secret is refused.
    """
    if path := os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
    else:
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
    stream = connection.makefile("rwb")
    if not path:
        _authenticate(stream, os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
    stream.write(_LENGTH.pack(os.getpid()))
    stream.flush()
    return connection, stream


def _authenticate(stream: BufferedRWPair, secret: bytes) -> None:
    stream.write(_LENGTH.pack(len(secret)) + secret)
    stream.flush()
    answer = stream.read(_LENGTH.size + len(_OK))
    if answer != _LENGTH.pack(len(_OK)) + _OK:
        raise ConnectionRefusedError("Spark refused the secret")


def main() -> None:
    connection, stream = connect_back()
    with connection, stream:
        from pyspark.sql.streaming.python_streaming_source_runner import main as run

        both = cast("IO[bytes]", stream)
        run(both, both)


if __name__ == "__main__":
    main()
