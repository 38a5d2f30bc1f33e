"""Acts in place of the user: issues an authorization code for a PKCE challenge."""
import datetime
import secrets

from django.contrib.auth.models import User
from django.http import JsonResponse
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application, Grant
from oauth2_provider.settings import oauth2_settings


def grant(request):
    code = secrets.token_urlsafe(32)
    Grant.objects.create(
        user=User.objects.get(username="alice"),
        application=Application.objects.get(client_id=request.GET["client_id"]),
        code=code,
        expires=timezone.now() + datetime.timedelta(seconds=60),
        redirect_uri=request.GET["redirect_uri"],
        scope="read",
        code_challenge=request.GET["code_challenge"],
        code_challenge_method=request.GET["code_challenge_method"],
    )
    return JsonResponse({"location": f"{request.GET['redirect_uri']}?code={code}&state={request.GET['state']}"})


def expire(request):
    """Expires all access tokens."""
    ended = timezone.now() - datetime.timedelta(seconds=1)
    return JsonResponse({"ended": AccessToken.objects.filter(expires__gt=ended).update(expires=ended)})


def life(request):
    """Sets the lifetime in seconds of access tokens that are issued from now on."""
    oauth2_settings.ALWAYS_RELOAD_OAUTHLIB_CORE = True
    oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS = int(request.GET["seconds"])
    return JsonResponse({"seconds": oauth2_settings.ACCESS_TOKEN_EXPIRE_SECONDS})
