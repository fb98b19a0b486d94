"""Markets that are generated from a seed."""
