"""A package: its platform ends with the last of its tests, where `scope="package"` would mean the whole run."""
