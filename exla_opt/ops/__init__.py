"""What an op is.

A file for each family (pointwise, creation, movement, parts, windows, reductions, indexing, scatters, linear, control,
collectives, random, custom_calls) defines its ops; `rules` has them all and gives the rule of every op of a module,
`tiling` builds tiles, `traits` says in one table what kind of op each is.
"""
