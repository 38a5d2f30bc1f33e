"""The origin of the comparison with a browser: plays the exchanges of exchanges.json and records the requests.

Prints its address when it listens. The first path segment names the client, the second segment the exchange. The field Step of a
request is the number of the exchange's step. When the page posts to /done, the text is written to the file that is
the only argument.

An exchange has steps, each with a request and the origin's response (by default the response of the previous step), and
responses for other paths ("elsewhere"), such as the targets of redirections. A numeric field of a response is a date that many
seconds from now. "unchanged" contains the differing fields of a 304.
"""

import email.utils
import http.server
import json
import pathlib
import sys
import threading
import time

FOLDER = pathlib.Path(__file__).resolve().parent
EXCHANGES = {exchange["name"]: exchange for exchange in json.loads((FOLDER / "exchanges.json").read_text("utf-8"))}
RECORDED = ["If-None-Match", "If-Modified-Since", "Range", "Cache-Control"]
CONTENT = "0123456789abcdef"
WITHOUT_BODY = (204, 304)


def answer(exchange, number, path):
    """The response for a path at a step."""
    if path != exchange["steps"][number - 1]["request"].get("path", ""):
        return exchange.get("elsewhere", {}).get(path, {"status": 404})
    return next((step["response"] for step in reversed(exchange["steps"][:number]) if "response" in step), {})


def opaque(tag):
    return tag.strip().removeprefix("W/")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    record = {}

    def log_message(self, *_):
        pass

    def answer_any(self):
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        client, _, rest = self.path.lstrip("/").partition("/")
        name, _, path = rest.partition("/")
        if client == "page.html":
            return self.send(200, {"Content-Type": "text/html; charset=utf-8"}, (FOLDER / client).read_bytes())
        if client == "exchanges.json":
            return self.send(200, {"Content-Type": "application/json"}, (FOLDER / client).read_bytes())
        if client == "record":
            with self.lock:
                record = json.dumps(self.record.get(name, {}), indent=2)
            return self.send(200, {"Content-Type": "application/json"}, record.encode())
        if client == "pause":
            time.sleep(float(name))
            return self.send(204, {})
        if client == "done":
            pathlib.Path(sys.argv[1]).write_bytes(content + b"\n")
            return self.send(204, {})
        exchange = EXCHANGES.get(name)
        number = int(self.headers.get("Step", 0))
        if exchange is None or not 0 < number <= len(exchange["steps"]):
            return self.send(404, {})
        seen = {"step": number, "method": self.command, "path": path}
        seen |= {field: self.headers[field] for field in RECORDED if field in self.headers}
        with self.lock:
            self.record.setdefault(client, {}).setdefault(name, []).append(seen)
        self.play(answer(exchange, number, path))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = answer_any

    def play(self, response):
        """Sends a response, after the evaluation of conditions and ranges."""
        headers = {"Date": 0} | response.get("headers", {})
        status = response.get("status", 200)
        body = response.get("body", CONTENT).encode()
        if status == 200 and self.command in ("GET", "HEAD"):
            if self.is_unchanged(headers):
                return self.send(304, headers | response.get("unchanged", {}))
            part = self.part(headers, len(body))
            if part:
                headers["Content-Range"] = f"bytes {part[0]}-{part[-1]}/{len(body)}"
                status, body = 206, body[part.start:part.stop]
        self.send(status, headers, body)

    def is_unchanged(self, headers):
        """RFC 9110, section 13.2.2: If-Modified-Since applies only without If-None-Match."""
        tags = self.headers.get("If-None-Match")
        if tags is not None:
            return "ETag" in headers and opaque(headers["ETag"]) in map(opaque, tags.split(","))
        since = self.headers.get("If-Modified-Since")
        return since is not None and since == headers.get("Last-Modified")

    def part(self, headers, length):
        """The requested bytes; None for all bytes."""
        text = self.headers.get("Range", "")
        if headers.get("Accept-Ranges") != "bytes" or not text.startswith("bytes="):
            return None
        if self.headers.get("If-Range", headers.get("ETag")) != headers.get("ETag"):
            return None
        first, _, last = text.removeprefix("bytes=").partition("-")
        if not first.isdigit() or int(first) >= length:
            return None
        return range(int(first), min(int(last) if last else length, length - 1) + 1)

    def send(self, status, headers, body=b""):
        self.send_response_only(status)
        for name, value in headers.items():
            is_date = isinstance(value, int)
            self.send_header(name, email.utils.formatdate(time.time() + value, usegmt=True) if is_date else value)
        if status not in WITHOUT_BODY:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status not in WITHOUT_BODY and self.command != "HEAD":
            self.wfile.write(body)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
