"""What every part shares: errors, settings, logs, metrics and the status page."""
