"""Where Spark Connect is reached, for those who ask and for the driver that offers it."""

import re
import urllib.parse

#: In `spark.conf`: what Spark Connect wants to hear before it answers.
TOKEN = "spark.connect.authenticate.token"
_ADDRESS = re.compile(r"^(?:sc://)?(.+)$")
_EVERYWHERE = re.compile(r"^(0\.0\.0\.0|\*|\[::\]):")
_LOOPBACK = re.compile(r"^(127\.0\.0\.1|\[::1\]):")


def connect_url(bind: str, token: str = "") -> str:
    """`sc://host:port` of a `host:port`, or of such an address as it is; one that names a token keeps its own."""
    address = _EVERYWHERE.sub("127.0.0.1:", _ADDRESS.sub(r"\1", bind))
    if not token or ";token=" in address:
        return f"sc://{address}"
    # Spark's client sends a token over TLS alone, but for this one name.
    address = _LOOPBACK.sub("localhost:", address)
    separator = "" if address.endswith(";") else ";" if "/;" in address else "/;"
    return f"sc://{address}{separator}token={urllib.parse.quote(token, safe='')}"
