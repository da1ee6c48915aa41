"""Where in Taiwan: 22 counties and 368 townships, found by name or by coordinates."""
