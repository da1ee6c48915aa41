"""A page that shows leases, claims, cached values and outages while they happen.

app.mount("/dibs", console(dibs, allow=is_admin))      # ASGI
console_wsgi(dibs, allow=is_admin)                     # WSGI
"""

from .asgi import console
from .wsgi import console_wsgi

__all__ = ["console", "console_wsgi"]
