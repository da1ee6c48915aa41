"""The real `AsyncDibs` in a simulated world: virtual clock, faulty network, a server in memory."""
