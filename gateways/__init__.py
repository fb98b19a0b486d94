"""Other systems' protocols over the platform's bus."""
