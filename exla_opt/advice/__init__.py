"""Changes to the user's program that a compiler has confirmed: each was compiled, and needs less memory.

The written module contains none of them; the user decides.
"""
