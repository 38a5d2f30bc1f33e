import Foundation
import MuxKit
import MuxNetwork
import MuxTestNeighbours
import MuxTestSupport
import Testing

/// Names of other packages next to `import MuxKit` and `import MuxNetwork`: an ambiguity does not compile.
@Suite(.standard)
struct NeighbouringNamesTests {
    private struct Model {
        @Dependency var number = 3
    }

    private struct GetUser: MuxNetwork.HTTPRequest {
        var endpoint: HTTPEndpoint { .init(scheme: .https, host: "api.domain.com", path: "/me") }
        var method: HTTPMethod { .get }
        typealias Output = String
    }

    @Test func `CS-04 the type Dependency of another module is not ambiguous`() {
        let dependency: Dependency<Int> = Dependency(wrappedValue: 4)
        #expect(dependency.wrappedValue == 4)
        #expect(Model().number == 3)
    }

    @Test func `CS-04 the function Task.retry of another module is not ambiguous`() async throws {
        var count = 0
        let value = try await Task.retry {
            count += 1
            guard count == 3 else { throw BadDependency() }
            return "third"
        }
        #expect(value == "third" && count == 3)
        #expect(try await Task.retry(attempts: 1) { 1 } == 1)
    }

    @Test func `CS-04 the name of each HTTPRequest type can include the module`() throws {
        let request: any MuxNetwork.HTTPRequest = GetUser()
        let other = MuxTestNeighbours.HTTPRequest(path: "/me")
        #expect(try request.endpoint.url().path() == other.path)
    }
}
