"""Thresholds over stored scores: keep or drop, with a reason for every drop."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
