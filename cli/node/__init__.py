"""`koord node`: what a node sells again, and why."""
