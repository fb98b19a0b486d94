"""How an exchange behaves beside its data: its clock, and deliberate faults."""
