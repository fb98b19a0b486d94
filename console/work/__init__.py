"""Work that loads large libraries or takes long, in separate processes."""
