"""Prediction of the peak usage of pods and priority classes: decaying histograms and their percentiles.

Logarithms and powers may differ in the last bit between machines, so events record predicted amounts, and no State
holds a histogram.
"""
