import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// Responses that are not the file, such as the page of a captive portal.
@Suite(.standard)
struct MediaAcceptanceTests {
    private static func minimum(_ bytes: Int64) -> AsyncMedia.Limits {
        var limits = AsyncMedia.Limits()
        limits.minimumFileBytes = bytes
        return limits
    }

    /// Accepted types, a `Content-Type`, and whether the type is accepted.
    static let types: [(accepts: [HTTPMediaType]?, field: String?, isAccepted: Bool)] = [
        (nil, "text/html", true), (nil, nil, true), ([.anyImage], "image/jpeg", true),
        ([.anyImage], "IMAGE/Png; a=b", true),
        ([.anyImage], "text/html; charset=utf-8", false), ([.anyImage], nil, false), ([.anyImage], "nonsense", false),
        ([.anyImage], "", false), ([.jpeg], "image/png", false), ([.jpeg, .pdf], "application/pdf", true),
        ([.anyVideo, .anyAudio], "audio/mpeg", true), ([.anyVideo, .anyAudio], "video/mp4", true),
        ([.anyVideo, .anyAudio], "image/gif", false), ([.any], "text/html", true), ([.utf8Text], "text/plain", true),
        ([], "image/png", false), ([.anyImage], "image", false), ([.anyImage], "imagery/png", false),
    ]

    @Test(arguments: Self.types.indices)
    func `WR-09 a response of an unexpected type is a typed error and no file`(index: Int) async throws {
        let row = Self.types[index]
        let file = LoopbackServer.File(size: 1000)
        let world = try MediaWorld(
            file,
            answer: { request in
                let response = file.response(to: request)
                return row.field.map { response.adding("Content-Type", $0) } ?? response
            }
        )
        try await world.run { (world) async throws in
            let media = world.media(accepts: row.accepts)
            if row.isAccepted {
                #expect(try Data(contentsOf: await media.request(url: world.url)) == file.content)
            } else {
                let type = row.field.flatMap { HTTPMediaType(rawValue: $0) }
                let error = await #expect(throws: MediaError.wrongType(type)) {
                    try await media.request(url: world.url)
                }
                #expect(error?.retryAdvice == .permanent)
                #expect(world.names == [] && media.cachedValue(url: world.url) == nil)
                #expect(world.server.requestCount == 1)
            }
            await media.expectAtRest()
        }
    }

    @Test func `WR-09 a resumed download keeps its bytes when a captive portal sends a page`() async throws {
        let file = LoopbackServer.File(size: 300_000)
        let count = Locked(0)
        let world = try MediaWorld(
            file,
            answer: { request in
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                switch number {
                case 1:
                    return file.response(to: request, fault: .cut(after: 100_000)).adding("Content-Type", "image/png")
                case 2: return .init(status: 302, headers: ["Location": "/portal"])
                case 3: return .init(headers: ["Content-Type": "text/html"], body: Data("<html>Welcome</html>".utf8))
                // A part without a type: RFC 9110, section 15.3.7.
                default: return file.response(to: request)
                }
            }
        )
        try await world.run { (world) async throws in
            let media = world.media(accepts: [.anyImage])
            let error = await #expect(throws: MediaError.wrongType(.html)) { try await media.request(url: world.url) }
            #expect(error?.description.contains("text/html") == true)
            #expect(world.partialSize == 100_000)

            let found = try await media.request(url: world.url)

            #expect(try Data(contentsOf: found) == file.content)
            #expect(file.starts == [0, 100_000])
        }
    }

    @Test func `WR-09 a download that its host's circuit refuses keeps the part of an earlier download`() async throws {
        let file = LoopbackServer.File(size: 300_000)
        let count = Locked(0)
        let world = try MediaWorld(
            file,
            answer: { request in
                let number = count.withLock { count in
                    count += 1
                    return count
                }
                return switch number {
                case 1: file.response(to: request, fault: .cut(after: 100_000))
                case 2: .text("expired", status: 403)
                case 3: .text("overloaded", status: 500)
                default: file.response(to: request)
                }
            }
        )
        let budget = RetryBudget(RetryBudget.Limits(failuresToOpen: 1, pause: .seconds(1_000)), clock: world.clock)
        try await world.run { (world) async throws in
            let media = AsyncMedia(
                directory: world.folder,
                retry: .immediate(maxAttempts: 1),
                budget: budget,
                durability: .relaxed,
                repository: world.repository
            )
            for url in [world.url, world.url(1)] {
                await #expect(throws: HTTPError.self) { try await media.request(url: url) }
            }
            await #expect(throws: (any Error).self) { try await media.request(url: world.url) }
            #expect(count.withLock(\.self) == 3, "the circuit is closed")
            #expect(world.partialSize == 100_000)

            world.clock.advance(by: .seconds(1_000))
            #expect(try Data(contentsOf: await media.request(url: world.url)) == file.content)
            #expect(file.starts == [0, 100_000])
        }
    }

    @Test(arguments: [(99, true), (99, false), (0, true), (0, false), (100, true), (100, false)])
    func `WR-09 a response that is too small is a typed error and no file`(size: Int, isAnnounced: Bool) async throws {
        let world = try MediaWorld(LoopbackServer.File(size: Int64(size)), faults: isAnnounced ? [] : [.unannounced])
        try await world.run { (world) async throws in
            let media = world.media(limits: Self.minimum(100))
            if size >= 100 {
                #expect(try Data(contentsOf: await media.request(url: world.url)) == world.file.content)
            } else {
                let error = await #expect(throws: MediaError.tooSmall(minimum: 100)) {
                    try await media.request(url: world.url)
                }
                #expect(error?.retryAdvice == .permanent)
                #expect(world.names == [])
                #expect(world.server.requestCount == 1)
            }
            await media.expectAtRest()
        }
    }

    @Test func `PT-01 a response that announces too few bytes is refused before its body has arrived`() async throws {
        let world = try MediaWorld(
            LoopbackServer.File(size: 50),
            answer: { _ in LoopbackServer.Response(body: Data(count: 10), claimedLength: 50) }
        )
        try await world.run { (world) async throws in
            let media = world.media(limits: Self.minimum(100))
            await #expect(throws: MediaError.tooSmall(minimum: 100)) { try await media.request(url: world.url) }
            #expect(world.names == [])
        }
    }

    @Test func `WR-09 a file that is too small for a new limit is fetched again`() async throws {
        let file = LoopbackServer.File(size: 50)
        let world = try MediaWorld(file)
        try await world.run { (world) async throws in
            _ = try await world.media().request(url: world.url)
            file.replace(size: 500, seed: 2, etag: "\"2\"")
            let media = world.media(limits: Self.minimum(100))

            #expect(await media.loadCachedValue(url: world.url) == nil)
            #expect(try Data(contentsOf: await media.request(url: world.url)) == file.content)
            #expect(world.names.count == 1)
        }
    }

    @Test func `WR-09 the types for any image, audio and video are media ranges`() throws {
        #expect(HTTPMediaType.anyImage.rawValue == "image/*")
        #expect(HTTPMediaType.anyAudio.rawValue == "audio/*")
        #expect(HTTPMediaType.anyVideo.rawValue == "video/*")
    }
}
