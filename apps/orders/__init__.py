"""A shop's orders: each is placed once, however often it is submitted."""
