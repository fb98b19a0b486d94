"""Matches row patterns: compiles them, prunes the ways through them, and searches."""
