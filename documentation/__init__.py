"""The documentation site: pages made from the code, and the configuration that builds them with docs/."""
