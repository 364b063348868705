"""The kinds of `koord get` and `koord describe`: one file each, read from the log alone."""
