"""The shared parts of commands: options, printing, completion, the browser."""
