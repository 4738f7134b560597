"""The work of the commands: each module reads the files that its command needs, and prints the answer."""
