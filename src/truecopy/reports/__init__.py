"""Reports: pure functions of records. Nothing is looked at here, and nothing flows back."""
