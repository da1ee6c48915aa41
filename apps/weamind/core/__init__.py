"""What every part of the bot leans on: settings, metrics, the database, the processing lock."""
