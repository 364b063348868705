"""What the terminal sees: arguments, options, completion of names, and how results are printed."""
