"""The behaviour of an exchange apart from its data: its clock, and deliberate faults."""
