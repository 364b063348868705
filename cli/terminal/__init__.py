"""The terminal side of commands: arguments, options, completion of names, and printed results."""
