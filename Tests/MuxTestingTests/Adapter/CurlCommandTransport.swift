#if os(Linux)
import Foundation
import MuxNetwork

extension ExchangeTransport {
    /// An adapter over another client, the `curl` command, that uses only the public interface.
    static func curlCommand(_ options: HTTPTransportConfiguration) -> ExchangeTransport {
        ExchangeTransport(options) { call, sink in
            let body = call.body.map { $0.data == nil ? CurlCommand.Body.pieces(length: $0.length) : .whole } ?? .none
            let fields = call.headers.fields.map { (name: $0.name.rawValue, value: $0.value) }
            let command = try CurlCommand(call.method, call.url, fields, body, usesProxies: options.usesProxies)
            defer { command.cancel() }
            async let sending: Void = self.send(call.body, to: command)
            do {
                let head = try await command.head()
                try await sink.receive(head: HTTPReply(status: head.status, headers: self.headers(head.fields)))
                while let piece = try await command.next() { try await sink.receive(piece) }
                return self.headers(await command.trailers())
            } catch let error as CurlCommand.Failed {
                try await sending
                throw self.failure(error)
            }
        }
    }

    private static func send(_ body: HTTPCall.Body?, to command: CurlCommand) async throws {
        if let data = body?.data { _ = await command.write(data) }
        if case .stream(let pieces)? = body {
            do {
                for try await piece in pieces {
                    guard await command.write(piece) else { break }
                }
            } catch {
                // The command would take the end of its input for the end of the body.
                command.cancel()
                throw error
            }
        }
        command.endBody()
    }

    private static func headers(_ fields: [(name: String, value: String)]) -> HTTPHeaders {
        var headers = HTTPHeaders()
        for field in fields {
            if let name = HTTPHeaders.Name(rawValue: field.name) { headers.append(field.value, for: name) }
        }
        return headers
    }

    private static func failure(_ error: CurlCommand.Failed) -> HTTPError.TransportFailure {
        switch error.status {
        case 6: .notResolved(error)
        case 7, 28: .notConnected(error)
        case 1, 8, 43: .notHTTP
        case 18, 52, 55, 56: .closedWithoutResponse(error)
        default: .unreachable(error)
        }
    }
}
#endif
