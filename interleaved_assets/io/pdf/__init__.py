"""PDF files: their text in reading order with embedded images in place."""
