"""The people who talk to the bot: their home, their office, and where they asked about last."""
