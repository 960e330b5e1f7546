"""From what a network carries to what it is to carry, and back to the running network."""
