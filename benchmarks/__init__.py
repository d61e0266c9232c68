"""Our numbers, and those of others: one command each."""
