"""Which clients are alive, what each reads, and the commands that wait for them."""
