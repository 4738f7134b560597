"""Tar archives: index of their members, and reading of bytes by position, also from compressed archives."""
