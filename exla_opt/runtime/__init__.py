"""Compiling and running modules through PJRT: the only part of the package that imports jax."""
