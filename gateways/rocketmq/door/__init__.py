"""Who may call, over which address and certificate, and the codes of replies."""
