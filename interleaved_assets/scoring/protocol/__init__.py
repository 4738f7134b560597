"""The interface of scorers and filters, the registry of scorers, and the loop over the images of a batch."""
