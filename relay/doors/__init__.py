"""Who is let in, and what passes the sockets."""
