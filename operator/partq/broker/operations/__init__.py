"""Operations of a broker, without HTTP: one module per kind of call."""
