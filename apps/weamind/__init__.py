"""WeaMind: a weather bot for LINE that never answers the same person twice at once."""
