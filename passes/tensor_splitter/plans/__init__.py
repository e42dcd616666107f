"""The cost of a region for each tile size, and the plans that can be combined. Analysis only."""
