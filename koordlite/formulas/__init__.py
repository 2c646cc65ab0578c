"""The arithmetic: numbers and model values in, values out. No I/O, no clock, no state.

Each formula stands in the first line of its docstring; docs/formulas.md has worked examples.
"""
