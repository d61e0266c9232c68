-- Which migration the schema is at, and the oldest code it still serves.
SELECT number, serves
FROM {schema}.revision
