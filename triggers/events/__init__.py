"""Events of triggers: fired ones as messages, and as rows for their table and for other triggers."""
