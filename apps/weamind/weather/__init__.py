"""The weather of a place: where it comes from, how it is shared, and how it is shown."""
