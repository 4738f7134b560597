"""The declarations of the commands: names, arguments, options, help. What a command does is imported when it runs."""
