"""Spark SQL for the operator, with MATCH_RECOGNIZE."""
