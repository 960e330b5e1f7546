"""What an owner stores of subscriptions, and what it answers (§6)."""
