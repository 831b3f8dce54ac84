"""The study of 2005: priorities, files and a failing cluster."""
