"""Definitions of ops.

A file for each family (pointwise, creation, movement, parts, windows, reductions, indexing, scatters, linear, control,
collectives, random, custom_calls) defines its ops; `rules` collects them and gives the rule of every op of a module,
`tiling` builds tiles, `traits` classifies all ops in one table.
"""
