"""LINE: what it sends to the bot, what the bot makes of it, and what it sends back."""
