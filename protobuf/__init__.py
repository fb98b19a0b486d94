"""Wire types: the `.proto` files, the classes generated from them, and the one table of frames."""
