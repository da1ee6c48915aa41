"""What INSTALLED_APPS loads: no models, only the command `alone`."""

# pyright: basic
# Django has no types.

from django.apps import AppConfig


class DibsConfig(AppConfig):
    """The application "dibs"."""

    name = "dibs.integrations.django"
    label = "dibs"
