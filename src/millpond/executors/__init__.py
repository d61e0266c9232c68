"""Where work runs: on the event loop, in our own threads, in our own child processes. Knows nothing of tenants."""
