"""Functions that change or drop the text rows of documents, and the check that they do nothing else."""
