"""The strangers: one file for each framework or service, named after it."""
