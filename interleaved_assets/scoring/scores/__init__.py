"""The built-in scores, each in a file that registers it as a plugin does. All files of this folder are loaded."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
