import Foundation
import Hummingbird
import MuxHummingbird
import Testing

struct ReadmeTests {
    /// The sample of README.md, line by line.
    private static func sample() async -> Router<BasicRequestContext> {
        let cache = ResponseCacheMiddleware<BasicRequestContext>()
        let router = Router()
        router.add(middleware: cache)
        router.get("places") { _, _ in
            Response(
                status: .ok,
                headers: [.cacheControl: "max-age=60", .cacheGroups: "\"places\""],
                body: .init(byteBuffer: ByteBuffer(string: "Berlin"))
            )
        }
        await cache.clear(group: "places")
        return router
    }

    @Test func `NB-04 each line of the README's sample is compiled`() async throws {
        _ = await Self.sample()
        let tests = URL(filePath: #filePath)
        let compiled = try Self.lines(of: tests)
        let readme = try Self.lines(of: tests.deletingLastPathComponent().appending(path: "../../README.md"))
        let samples = readme.split(separator: "```").filter { $0.contains("import MuxHummingbird") }
        #expect(samples.count == 1)
        for line in samples.joined() where !line.isEmpty {
            #expect(compiled.contains(line), "\(line)")
        }
    }

    /// The lines of a file, without indentation and comments after code.
    private static func lines(of file: URL) throws -> [String] {
        try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map { line in
            let code = line.firstRange(of: " //").map { line[..<$0.lowerBound] } ?? line
            return code.trimmingCharacters(in: .whitespaces)
        }
    }
}
