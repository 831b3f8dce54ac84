"""What verbs print with: tables, words, colours, and screens that renew themselves."""
