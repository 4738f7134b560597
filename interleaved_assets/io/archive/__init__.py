"""Tar archives: the index of their members, and reads of bytes by position, also from compressed archives."""
