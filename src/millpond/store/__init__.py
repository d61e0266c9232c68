"""The store: the only room that knows SQL. Statements are values; runners of a few lines execute them."""
