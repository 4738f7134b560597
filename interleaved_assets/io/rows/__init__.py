"""Batches of rows of any file format: bounds, bytes by locator, the policy for rows with errors."""
