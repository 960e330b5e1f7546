"""Sessions and their messages: many, slow, large."""
