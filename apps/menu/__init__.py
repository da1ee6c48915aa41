"""The menu of a restaurant chain: a store-service that knows it, and a BFF that caches it."""
