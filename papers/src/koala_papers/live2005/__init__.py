"""The experiment of 2005 live at small scale: priorities, files and claiming on real batch systems that fail."""
