"""The search for a memory limit: of all rewritings of a module that fit, the fastest."""
