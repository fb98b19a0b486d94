"""Commands about triggers: checking a text, trying it over stored rows, explaining its events, its cost."""
