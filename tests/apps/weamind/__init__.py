"""The promises of the LINE bot."""
