"""Sending, receiving and pulling, as the calls of clients ask for them."""
