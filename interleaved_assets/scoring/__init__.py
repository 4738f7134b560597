"""One measured quantity a file: what an image or a sample is like, never whether to keep it."""
