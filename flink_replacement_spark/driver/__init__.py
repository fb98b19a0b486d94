"""What the driver does around its queries: starting and watching them, standing by, and detecting faults."""
