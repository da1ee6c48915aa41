"""The menu below every chat: what its six buttons do, how it looks, and how LINE gets it."""
