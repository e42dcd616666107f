"""The ops that one factor reaches from a big tensor, and whether they may run in loops. Analysis only, no costs."""
