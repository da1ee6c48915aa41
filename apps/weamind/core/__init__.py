"""What every part of the bot uses: settings, metrics, the database, the processing lock."""
