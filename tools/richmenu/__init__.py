"""Draws the picture of the bot's rich menu, `apps/weamind/richmenu/menu.png`."""
