"""The clients' door: requests in, topics out."""
