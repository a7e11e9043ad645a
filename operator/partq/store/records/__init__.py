"""What Redis holds, one module per kind of record: each calls the scripts of its keys."""
