"""uvicorn and hypercorn with a short keep-alive limit, and a server that sends unsolicited bytes, in one process.

Prints a line `name=url` for each server after all servers listen: in one write, because a reader takes the first lines for all lines.
"""
import asyncio
import os
import socket
import ssl
import sys

import h2.config
import h2.connection
import h2.errors
import h2.events
import hypercorn.asyncio
import hypercorn.config
import uvicorn

CERTIFICATE, KEY = sys.argv[1:3]
VERSIONS = {"12": ssl.TLSVersion.TLSv1_2, "13": ssl.TLSVersion.TLSv1_3}


def context(version, protocols=("http/1.1",)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    context.minimum_version = context.maximum_version = VERSIONS[version]
    context.set_alpn_protocols(list(protocols))
    return context


def listener():
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    return listener


lines = []


def announce(name, scheme, listener):
    lines.append(f"{name}={scheme}://127.0.0.1:{listener.getsockname()[1]}")


async def echo(scope, receive, send):
    """Responds with the protocol, the method, the path, the client's port and the body."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    text = f'{scope["http_version"][0]} {scope["method"]} {scope["path"]} {scope["client"][1]} '.encode() + body
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


def run_uvicorn(version):
    config = uvicorn.Config(echo, timeout_keep_alive=1, log_level="error", lifespan="off")
    config.load()
    config.ssl = context(version)
    sockets = [listener()]
    announce(f"uvicorn-{version}", "https", sockets[0])
    return uvicorn.Server(config).serve(sockets=sockets)


def run_hypercorn(version, protocol):
    name = f"hypercorn-{version}" + ("-h2" if protocol == "h2" else "")

    class Config(hypercorn.config.Config):
        ssl_enabled = True

        def create_ssl_context(self):
            return context(version, [protocol])

    config, listening = Config(), listener()
    config.keep_alive_timeout = 1
    # At this limit, hypercorn drops the last counted request.
    config.keep_alive_max_requests = 1_000_000
    config.bind = [f"fd://{os.dup(listening.fileno())}"]
    config.loglevel = "ERROR"
    announce(name, "https", listening)
    return hypercorn.asyncio.serve(echo, config, shutdown_trigger=asyncio.Event().wait)


STRAY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Control: max-age=1000\r\n\r\nstray"
FIRST = {
    # The head is in a separate record, so that a client reads only the body from the next record.
    "joined": [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"first" + STRAY],
    "length": [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"],
    "chunked": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\n\r\n"],
    "head": [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"],
    "nocontent": [b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"],
    "notmodified": [b"HTTP/1.1 304 Not Modified\r\n\r\n"],
}


async def stray(reader, writer):
    """`/pause/s` responds after s seconds; `/stray/kind/s` at once, and again after s seconds; other paths with their path."""
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            words = head.split(b" ")[1].decode().split("/")[1:]
            length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
            await reader.readexactly(length)
            if words[0] == "stray":
                for piece in FIRST[words[1]]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.005)
                await asyncio.sleep(float(words[2]))
                writer.write(b"0\r\n\r\n" if words[1] == "nocontent" else STRAY)
            else:
                if words[0] == "pause":
                    await asyncio.sleep(float(words[1]))
                body = "/".join(words).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


refused = set()


async def refusing(reader, writer):
    """HTTP/2: refuses the first request for `/refused/x` by the stream, and for `/goaway/x` by the connection; else returns 200."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    paths = {}
    try:
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    paths[event.stream_id] = dict(event.headers)[":path"], b""
                elif isinstance(event, h2.events.DataReceived):
                    path, body = paths[event.stream_id]
                    paths[event.stream_id] = path, body + event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    path, body = paths[event.stream_id]
                    if path not in refused and path.startswith("/refused"):
                        refused.add(path)
                        connection.reset_stream(event.stream_id, h2.errors.ErrorCodes.REFUSED_STREAM)
                    elif path not in refused and path.startswith("/goaway"):
                        refused.add(path)
                        connection.close_connection(last_stream_id=event.stream_id - 2 if event.stream_id > 1 else 0)
                        writer.write(connection.data_to_send())
                        await writer.drain()
                        writer.close()
                        return
                    else:
                        text = path.encode() + b" " + body
                        connection.send_headers(event.stream_id, [(":status", "200"), ("content-length", str(len(text)))])
                        connection.send_data(event.stream_id, text, end_stream=True)
            writer.write(connection.data_to_send())
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.close()


async def main():
    servers = [await asyncio.start_server(stray, "127.0.0.1", 0, backlog=512)]
    announce("stray-plain", "http", servers[0].sockets[0])
    for version in VERSIONS:
        servers.append(await asyncio.start_server(stray, "127.0.0.1", 0, backlog=512, ssl=context(version)))
        announce(f"stray-{version}", "https", servers[-1].sockets[0])
    servers.append(await asyncio.start_server(refusing, "127.0.0.1", 0, ssl=context("13", ["h2"])))
    announce("refusing-13-h2", "https", servers[-1].sockets[0])
    running = [run_uvicorn(version) for version in VERSIONS]
    running += [run_hypercorn(version, protocol) for version in VERSIONS for protocol in ("http/1.1", "h2")]
    running = [asyncio.create_task(server) for server in running]
    print("\n".join(lines), flush=True)
    await asyncio.gather(*running)


asyncio.run(main())
