"""The same routes, for Django under ASGI."""

from django.urls import re_path

from .edges_django import aroute

urlpatterns = [re_path(r"^(?P<path>.*)$", aroute)]
