"""Image files with captions beside them, as folders of images have them."""
