"""The settings as a page within LINE (LIFF): who opens it, what they choose, how it looks."""
