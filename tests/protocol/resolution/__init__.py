"""Look-ups, and what clients cache of them."""
