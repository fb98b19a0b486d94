"""The application: the supervisor behind `candlewright up`, and the commands that need the platform here."""
