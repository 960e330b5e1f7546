"""Commands that start, show and change a network: up, down, status, tree, move, leave, apply, resolve."""
