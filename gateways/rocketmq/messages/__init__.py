"""Messages as records of the bus: names, handles, filters and delays."""
