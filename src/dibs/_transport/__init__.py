"""The wire: connections are opened by redis-py, the bytes afterwards flow our way."""
