"""Failed runs: where the fault lies, and which places the job avoids for a while."""
