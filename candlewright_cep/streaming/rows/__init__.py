"""Rows on their way through a stream: put in event order, divided by partition, kept, and saved as bytes."""
