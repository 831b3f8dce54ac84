"""What several tests share: worlds, fakes, fixtures, samples and programs that tests start. No test lives here."""
