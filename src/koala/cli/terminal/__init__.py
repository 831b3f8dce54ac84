"""The output of verbs: tables, words, colours, and live screens."""
