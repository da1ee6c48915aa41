"""`make dist`: build what is published, check it, install it alone, and try each extra."""
