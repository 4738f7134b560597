"""The pages of ``interleaved serve``: report, pages, ledgers and records below the output root, in a browser."""
