"""The declarations of the commands: names, arguments, options, help. The work of a command is imported when it runs."""
