"""The playground: one page on an embedded server, to see leases work."""
