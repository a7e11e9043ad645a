"""Records in Redis, one module per kind: each calls the scripts of its keys."""
