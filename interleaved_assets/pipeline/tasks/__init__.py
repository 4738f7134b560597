"""The work of the stages, each in the module of its name, and its parts."""
