"""Scorers, one per file: they measure images and samples, and do not decide what to keep.

CLIP scores need torch and are in ``interleaved_assets.scoring.clip``, which this package does not import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
