"""The shared parts of tests: worlds, fakes, fixtures, samples and programs that tests start. No test lives here."""
