"""Starting Redis and Valkey servers: for `embedded://`, and for `dibs.testing`."""
