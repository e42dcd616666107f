"""Naive JAX code through exla-opt against what people use in its place."""
