"""Counts the requests of the server."""
import collections
import threading

from django.http import JsonResponse

counts = collections.Counter()
lock = threading.Lock()


class Counting:
    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        grant = request.POST.get("grant_type", "") if request.path == "/o/token/" else ""
        response = self.get_response(request)
        if request.path != "/counts":
            with lock:
                counts[f"{request.path} {grant} {response.status_code}".replace("  ", " ")] += 1
        return response


def show(request):
    with lock:
        return JsonResponse(dict(counts))
