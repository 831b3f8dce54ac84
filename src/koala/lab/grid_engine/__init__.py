"""The Grid Engine cell of a lab."""
