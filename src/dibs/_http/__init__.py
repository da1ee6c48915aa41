"""THE ENGINE for HTTP: which requests are guarded, as what, and what they are told. No I/O."""
