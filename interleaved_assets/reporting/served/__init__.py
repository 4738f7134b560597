"""What ``interleaved serve`` shows in a browser: report, pages, ledgers and records below the output root."""
