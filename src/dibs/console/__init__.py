"""A page that shows leases, claims, cached values and outages while they happen.

app.mount("/dibs", console(dibs, allow=is_admin))      # ASGI
application = console(dibs, allow=is_admin).wsgi       # WSGI
"""

from .application import console

__all__ = ["console"]
