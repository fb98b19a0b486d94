"""Help while writing a trigger's text, for editors that speak the Language Server Protocol."""
