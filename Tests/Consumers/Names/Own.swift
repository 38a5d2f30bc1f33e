// swift-format-ignore-file: AlwaysUseLowerCamelCase

import MuxCompatibility
import MuxKit
import MuxNetwork

// A client's types with the same names: the compiler uses these types without a warning.

struct Dependency { var name = "mine" }
struct MultiRequester { var name = "mine" }
enum SilencableError: Error { case offline }
enum HTTPStatusCode: Int { case ok = 200 }
struct HTTPHeaderKey { var name = "mine" }

enum Verb { case GET, POST }

extension Task where Success == Never, Failure == Never {
    static func retry(attempts: Int, _ operation: () async throws -> Int) async throws -> Int { try await operation() }
    static func retry<Output>(operation: () async throws -> Output) async throws -> Output { try await operation() }
}

func mine() async throws -> [String] {
    let code: HTTPStatusCode = .ok
    let verb: Verb = .GET
    let number = try await Task.retry(attempts: 3) { 3 }
    let another = try await Task.retry { 3 }
    _ = (code, verb, number, another)
    return [Dependency().name, MultiRequester().name, HTTPHeaderKey().name]
}
