"""The core's state as it is stored: written, read again, older formats, and a job taken out of it."""
