"""What a gateway tells operators, and what they ask of it."""
