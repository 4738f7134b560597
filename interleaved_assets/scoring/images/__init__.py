"""Encoded images: their container and size, decoding, thumbnails."""
