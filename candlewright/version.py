"""The version of all three distributions; `./run build` reads it here."""

VERSION = "0.1.0"
