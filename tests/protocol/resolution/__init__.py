"""Look-ups and what clients remember of them."""
