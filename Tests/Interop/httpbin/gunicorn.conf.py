"""httpbin on a free port of this machine; prints the address when the server listens."""

bind = "127.0.0.1:0"
worker_class = "gthread"
threads = 8


def when_ready(server):
    print(f"http://127.0.0.1:{server.LISTENERS[0].sock.getsockname()[1]}", flush=True)
