"""Who owns a topic: look-ups, their answers, and what is cached of them (§5.2, §5.3)."""
