"""The functions that a text may call: signatures, NULL rules and vectorised kernels."""
