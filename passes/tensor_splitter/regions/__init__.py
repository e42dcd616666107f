"""What one factor reaches from a big tensor, and whether it may run in loops. Analysis only: no price is asked."""
