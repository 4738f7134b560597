"""From a sample, a tar or a column back to its source."""
