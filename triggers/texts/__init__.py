"""What a registration says: its text, inputs and options, checked and described."""
