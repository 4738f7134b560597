"""Thresholds over stored scores: keep or drop, with a reason for every drop."""
