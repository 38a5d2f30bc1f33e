import Foundation
import MuxNetwork
import MuxTesting

/// Pages of the backend with cache directives.
///
/// An `Age` beyond `max-age` makes a response stale on arrival, so that an act need not wait.
enum Pages {
    /// The response to a request for a page; `nil` for other paths.
    static func answer(to request: LoopbackServer.Request) -> LoopbackServer.Response? {
        let isConditional = request.header("If-None-Match") == self.tag
        switch request.path {
        case "/pages/weather":
            guard isConditional else { return self.stale("Sunny", "max-age=60") }
            return .init(status: 304, headers: ["ETag": self.tag, "Cache-Control": "max-age=60"])
        case "/pages/greeting":
            let text = request.header("Accept-Language") == "fr" ? "Bonjour" : "Guten Tag"
            return .init(headers: ["Cache-Control": "max-age=60", "Vary": "Accept-Language"], body: Data(text.utf8))
        case "/pages/news":
            return isConditional ? .init(status: 503) : self.stale("All is well", "max-age=60, stale-if-error=600")
        case "/pages/prices":
            return isConditional ? .init(status: 503) : self.stale("A penny", "max-age=60")
        default: return nil
        }
    }

    private static let tag = "\"1\""

    private static func stale(_ text: String, _ control: String) -> LoopbackServer.Response {
        .init(headers: ["ETag": self.tag, "Cache-Control": control, "Age": "61"], body: Data(text.utf8))
    }
}

/// A client that reads the pages through a cache.
struct PageReader {
    /// A page as received by the client.
    struct Reading: CustomStringConvertible {
        var response: HTTPResponse
        /// The number of requests for the page that have reached the server.
        var requests: Int

        var text: String { String(decoding: self.response.body, as: UTF8.self) }
        var cache: HTTPCacheStatus? { self.response.cacheStatus }

        var description: String {
            "\(self.cache?.description ?? "no cache") (\(self.response.status.code), requests: \(self.requests))"
        }
    }

    let client: HTTPClient
    let server: LoopbackServer

    func read(_ name: String, headers: HTTPHeaders = [:]) async throws -> Reading {
        let endpoint = try HTTPEndpoint(self.server.url).appending("/pages/\(name)")
        let response = try await self.client.response(to: GetPage(endpoint: endpoint), headers: headers)
        return Reading(response: response, requests: self.server.requestCount("GET /pages/\(name)"))
    }
}

/// A page, as bytes.
struct GetPage: HTTPRequest {
    var endpoint: HTTPEndpoint
    var method: HTTPMethod { .get }
}
