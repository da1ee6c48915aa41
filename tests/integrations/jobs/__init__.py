"""Jobs that must not run twice, in every framework: real workers on a real broker."""
