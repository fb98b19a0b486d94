"""Free slots, who is served next, and room for what comes back."""
