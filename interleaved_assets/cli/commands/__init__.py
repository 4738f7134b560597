"""The commands, each in the file of its name: its arguments, options and help, and its work.

Functions import what they need, so that help and completion wait for none of it.
"""
