"""The study of 2006 live at small scale, on real batch systems."""
