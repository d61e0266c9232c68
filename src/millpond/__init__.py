"""A Postgres job store with a tenant-isolated worker pool."""
