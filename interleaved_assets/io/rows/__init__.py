"""Batches of rows, whatever their files: bounds, bytes by locator, the policy for rows with errors."""
