"""Which keys are accepted, and what passes the sockets."""
