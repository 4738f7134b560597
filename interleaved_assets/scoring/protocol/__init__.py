"""What a scorer and a filter are, the registry of scorers, and the loop over the images of a batch."""
