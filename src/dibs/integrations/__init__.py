"""Integrations: one module for each framework or service, named after it."""
