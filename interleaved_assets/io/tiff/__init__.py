"""TIFF directories, and frames cut out without decoding."""
