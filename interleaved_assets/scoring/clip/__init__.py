"""CLIP scores: the model, its inputs, its scores and the heads on top of it."""
