"""TaintToleration: a taint keeps pods away that do not tolerate it."""
