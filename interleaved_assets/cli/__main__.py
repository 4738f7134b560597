"""``python -m interleaved_assets.cli``: the same as ``interleaved``."""

import sys

from interleaved_assets.cli.entry_point import main

sys.exit(main())
