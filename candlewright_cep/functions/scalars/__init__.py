"""Functions of one row: each a signature, a NULL rule and a kernel over whole columns."""
