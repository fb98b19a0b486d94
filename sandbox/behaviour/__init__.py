"""How an exchange behaves beside its data: its clock, its limits, and deliberate faults."""
