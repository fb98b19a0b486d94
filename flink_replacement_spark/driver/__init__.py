"""What the driver does around its queries: starting and watching them, standing by, and noticing what is wrong."""
