"""The documentation, run and checked."""
