"""Runs this project's own code on recorded inputs, one package for each area of it."""
