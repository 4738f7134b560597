"""The row model: rows and their schema, locators of bytes, the ledger, errors. It loads pyarrow, but not pandas."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
