"""What pods and classes of them are going to need at most, from what they used: decaying histograms and the peaks read off them.

Logarithms and powers may differ in the last bit between machines, so what is predicted enters a log as its result, and no State holds a
histogram.
"""
