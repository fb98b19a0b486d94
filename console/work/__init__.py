"""Calls that load much or run long, in separate processes."""
