"""The platform's commands."""
