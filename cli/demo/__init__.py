"""`koord demo`: the whole system in a minute, ending with what came of it."""
