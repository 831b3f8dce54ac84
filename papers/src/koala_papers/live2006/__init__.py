"""The study of 2006 in small, live on real batch systems."""
