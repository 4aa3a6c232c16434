"""Looking inside, and drawing."""
