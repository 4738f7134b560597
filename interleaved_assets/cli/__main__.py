"""``python -m interleaved_assets.cli``: the same as ``interleaved``."""

import sys

from interleaved_assets.cli import main

sys.exit(main())
