"""The module that ``workspace.yaml`` names: the definitions under the settings in force."""

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.model.shown import show_warnings
from interleaved_assets.settings import load_settings

show_warnings()
defs = build_definitions(load_settings())
