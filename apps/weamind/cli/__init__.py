"""The commands of an operator: serve, doctor, richmenu. `--help` loads nothing of the bot."""
