"""What is done with keys: provided, rotated, escrowed, destroyed, and recognised when a token is presented."""
