"""`koord parity`: our code on recorded inputs of upstream's, its answers beside upstream's, case by case."""
