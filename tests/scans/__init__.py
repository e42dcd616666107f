"""Random loops written in JAX and differentiated by it: what each step stores is as its ops happen to need it."""
