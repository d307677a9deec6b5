"""Elementary functions as arithmetic: each file expands one family, accurate to 4 units in the last place."""
