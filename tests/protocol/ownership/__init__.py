"""What a node owns."""
