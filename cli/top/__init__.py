"""`koord top`: how a running system does."""
