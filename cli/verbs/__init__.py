"""The verbs of the command, `koord VERB KIND NAME`: each is one file with one line for each kind that it takes."""
