"""The tenant pool: in memory, usable alone, knows nothing of Postgres."""
