"""What happened, where a job stands and when it is expected to start, in words for people: once, for the terminal,
the pages and the API. Reads values of the core and the model; decides nothing."""
