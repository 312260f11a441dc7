"""The columns of every table: names, types, units, defaults."""
