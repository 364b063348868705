"""`koord replay`: recorded decisions, repeated and compared."""
