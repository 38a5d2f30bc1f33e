from django.http import JsonResponse
from django.urls import path
from oauth2_provider.decorators import protected_resource
from oauth2_provider.views import TokenView

from .counting import show
from .grants import expire, grant, life


@protected_resource(scopes=["read"])
def me(request):
    return JsonResponse({"user": request.resource_owner.username})


def me_or_401(request):
    """The toolkit returns 403 for an expired token; RFC 6750, section 3.1, requires 401."""
    response = me(request)
    if response.status_code == 403:
        response = JsonResponse({"error": "invalid_token"}, status=401)
        response["WWW-Authenticate"] = 'Bearer error="invalid_token"'
    return response


urlpatterns = [
    path("o/token/", TokenView.as_view()),
    path("me", me_or_401),
    path("grant", grant),
    path("expire", expire),
    path("life", life),
    path("counts", show),
]
