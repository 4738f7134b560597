"""Tar archives as files: the index of their members, and their bytes by position, also of compressed ones."""
