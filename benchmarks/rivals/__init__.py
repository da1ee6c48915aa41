"""dibs beside twelve other libraries, under the same faults: `make rivals`.

Each library has an environment of its own, `.venv-rivals/NAME`, from the hashed pins in
requirements/rivals. `caller.py` and `libraries.py` run there: one process that makes the calls
which the library's documentation shows. The other modules run in the checkout's environment:
they start a Valkey for each case, kill, stop and count.
"""
