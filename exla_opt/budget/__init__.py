"""One number: of all ways to rewrite a module, those that fit into a memory limit, and the fastest of them."""
