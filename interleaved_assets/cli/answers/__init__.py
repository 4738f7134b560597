"""The work of the commands: each module reads what its command needs, and prints the answer."""
