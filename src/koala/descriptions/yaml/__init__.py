"""YAML text to checked models, with every problem at its line and column."""
