"""What a text may call: signatures, NULL rules and vectorised values."""
