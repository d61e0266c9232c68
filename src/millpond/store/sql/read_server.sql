-- What the server is like, and whether this schema is migrated at all; every role may ask.
SELECT
    current_setting('server_version_num')::integer AS version,
    pg_encoding_to_char(encoding) AS encoding,
    to_regclass(quote_ident({schema_name}::text) || '.revision') IS NOT NULL AS migrated,
    to_regclass(quote_ident({schema_name}::text) || '.alembic_version') IS NOT NULL AS versioned
FROM pg_catalog.pg_database
WHERE datname = current_database()
