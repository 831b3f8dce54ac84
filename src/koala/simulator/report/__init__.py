"""What a simulation shows: the HTML page, the timeline and remarks on its numbers."""
