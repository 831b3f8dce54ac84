"""The display of a simulation: the HTML page, the timeline and remarks on its numbers."""
