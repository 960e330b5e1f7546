"""Who gets in: the join key, the authority, and what is read on the way."""
