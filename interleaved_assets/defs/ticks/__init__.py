"""What a tick of a sensor or schedule does; imported when one begins, and not with the definitions."""
