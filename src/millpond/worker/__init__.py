"""The worker: claims what the pool has room for, runs it, settles what became of it."""
