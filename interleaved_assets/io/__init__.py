"""Reading and writing of shards: tar and Parquet, local and remote; writes are atomic and deterministic."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
