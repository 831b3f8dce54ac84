"""Why a try to place a job failed, as a value, and what would cure it."""
