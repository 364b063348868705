"""`koord describe KIND NAME`: facts, state and last events of one object, for people; one file for each kind."""
