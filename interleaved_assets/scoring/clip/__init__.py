"""CLIP: identity, model, image and text, batching, scores and heads.

The import loads no torch; :func:`load_scorer` does.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
