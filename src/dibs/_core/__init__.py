"""The thinking: no I/O, no clock, no randomness, no await. Told the time, the chance, the reply."""
