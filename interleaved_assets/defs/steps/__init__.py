"""What a step does; imported when one begins, and not with the definitions."""
