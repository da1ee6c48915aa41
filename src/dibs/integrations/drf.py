"""Duplicate submissions and idempotency keys for Django REST framework.

    class Orders(APIView):                       # a ViewSet, or a function with @api_view, too
        @once(window=86400, after="replay", key="required")
        def post(self, request): ...

    class Payments(OnceMixin, ModelViewSet):     # every method that changes something
        dibs_policy = Policy(window=86400, after="replay", key="required")

The handler is claimed after authentication, permissions and throttles, and the rendered response is
stored. The settings are those of `dibs.integrations.django`.
"""

# pyright: basic
# Django and Django REST framework have no types.

from typing import Any

from .._http.decorators import check_single
from .._http.policy import SAFE, Policy
from ..errors import UsageError
from . import needs

with needs("drf"):
    from .django import exempt, guard, once, prevent_duplicate_submit, throttled

__all__ = ["OnceMixin", "Policy", "exempt", "once", "prevent_duplicate_submit", "throttled"]


class OnceMixin:
    """Guards the handlers of an `APIView` or a `ViewSet`, by its `dibs_policy`.

    List it before the view among the base classes. Safe methods (GET …) are not guarded.
    """

    dibs_policy: Policy

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not isinstance(getattr(cls, "dibs_policy", None), Policy):
            raise UsageError(f"{cls.__name__} needs dibs_policy = Policy(window=…)")

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Wrap the handler after authentication, permissions and throttles have passed.

        Raises:
            UsageError: A decorator guards it already.
        """
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        name = str(request.method).lower()
        handler = getattr(self, name, None)
        if handler is not None and request.method not in SAFE:
            check_single(handler)
            setattr(self, name, guard(self.dibs_policy, handler))
