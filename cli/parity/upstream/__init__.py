"""Predicts upstream's recorded answers where this project's differ on purpose, one package for each area of it."""
