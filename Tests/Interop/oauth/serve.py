"""Creates the database, starts the server on a free port of this machine, and prints its address."""
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "oauth.settings")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import django

django.setup()

import socketserver
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection
from oauth2_provider.models import Application

call_command("migrate", verbosity=0)
with connection.cursor() as cursor:
    cursor.execute("PRAGMA journal_mode=WAL")
User.objects.create_user("alice", password="secret")
kinds = {
    "public": (Application.CLIENT_PUBLIC, Application.GRANT_AUTHORIZATION_CODE),
    "confidential": (Application.CLIENT_CONFIDENTIAL, Application.GRANT_AUTHORIZATION_CODE),
    "machine": (Application.CLIENT_CONFIDENTIAL, Application.GRANT_CLIENT_CREDENTIALS),
}
for name, (kind, grant) in kinds.items():
    Application.objects.create(
        name=name,
        client_id=name,
        client_secret="s3cr:t/+ é",
        client_type=kind,
        authorization_grant_type=grant,
        redirect_uris="https://client.example.com/cb",
    )


class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 512


class Handler(WSGIRequestHandler):
    def log_message(self, *arguments):
        pass


server = make_server("127.0.0.1", 0, get_wsgi_application(), server_class=Server, handler_class=Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
