"""Sentences for people on events, on where a job stands and on its expected start: one source for the terminal, the
pages and the API. Reads values of the core and the model; decides nothing."""
