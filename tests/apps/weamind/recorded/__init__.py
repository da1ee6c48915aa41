"""What weather services answer, a server that answers it, and LINE's limits for messages."""
