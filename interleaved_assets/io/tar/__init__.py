"""Documents and their members in tars: reading and writing."""
