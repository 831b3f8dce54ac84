"""The experiment of 2005 in small and live: priorities, files and claiming on real batch systems that fail."""
