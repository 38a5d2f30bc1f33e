import Foundation
import MuxKit
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct MediaErrorTests {
    @Test(arguments: [204, 304, 400, 401, 403, 404, 410, 416, 500, 503])
    func `AM-10 a status without a file is a typed error and leaves no file`(status: Int) async throws {
        let world = try MediaWorld(answer: { _ in .text("an error page", status: status) })
        try await world.run { (world) async throws in
            let media = world.media()
            let error = await #expect(throws: HTTPError.self) { try await media.request(url: world.url) }

            #expect(error?.status?.code == status)
            #expect(world.names == [])
            #expect(world.server.requestCount == (status == 503 || status == 500 ? 3 : 1), "a policy of three attempts")
            await media.expectAtRest()
        }
    }

    @Test func `AM-10 a 401 response that asks for a password is a typed error`() async throws {
        let world = try MediaWorld(answer: { _ in
            LoopbackServer.Response(
                status: 401,
                headers: ["WWW-Authenticate": "Basic realm=\"r\""],
                body: Data("no".utf8)
            )
        })
        try await world.run { (world) async throws in
            let error = await #expect(throws: HTTPError.self) { try await world.media().request(url: world.url) }
            #expect(error?.status?.code == 401)
        }
    }

    @Test func `AM-10 redirects that never end are a typed error`() async throws {
        let world = try MediaWorld(answer: { _ in .init(status: 302, headers: ["Location": "/again"]) })
        try await world.run { (world) async throws in
            await #expect(throws: HTTPError.redirectRefused(.tooMany(limit: 10))) {
                try await world.media().request(url: world.url)
            }
            #expect(world.names == [])
        }
    }

    @Test(arguments: [404, 0])
    func `WR-08 an error of a download names the URL without its query`(status: Int) async throws {
        let world = try MediaWorld(answer: { _ in
            status == 0 ? LoopbackServer.Response(steps: [.close]) : .text("", status: status)
        })
        try await world.run { (world) async throws in
            let url = world.url.appending(queryItems: [URLQueryItem(name: "signature", value: "s3cr3t")])
            let error = await #expect(throws: HTTPError.self) { try await world.media().request(url: url) }
            let text = error?.description ?? ""
            #expect(text.contains("GET 127.0.0.1:\(url.port ?? 0)\(url.path()) "), "\(text)")
            #expect(!text.contains("s3cr3t"))
        }
    }

    @Test func `WR-08 an error of a file names the URL without its query, too`() async throws {
        let world = try MediaWorld(answer: { _ in .text("short", status: 200) })
        try await world.run { (world) async throws in
            let url = world.url.appending(queryItems: [URLQueryItem(name: "signature", value: "s3cr3t")])
            let digest = String(repeating: "0", count: 64)
            var failure: MediaError?
            do {
                _ = try await world.media().request(url: url, sha256: digest)
            } catch MediaError.removed {
                Issue.record("another reason")
            } catch MediaError.wrongDigest {
                failure = .wrongDigest
            }
            #expect(failure?.reason == .wrongDigest && failure?.request == nil)
            let error = await #expect(throws: MediaError.wrongDigest) {
                try await world.media().request(url: url, sha256: digest)
            }
            #expect(error?.request == "GET 127.0.0.1:\(url.port ?? 0)\(url.path())")
            let reason = "The digest of the file differs from the expected digest."
            #expect(error?.description == "\(error?.request ?? "") failed. \(reason)")
            let text = String(reflecting: error)
            #expect(!"\(error.map { "\($0)" } ?? "")".contains("s3cr3t") && !text.contains("s3cr3t"))
        }
    }

    @Test func `AM-10 a redirect is followed`() async throws {
        let world = try MediaWorld(answer: { request in
            request.path == "/moved" ? nil : LoopbackServer.Response(status: 302, headers: ["Location": "/moved"])
        })
        try await world.run { (world) async throws in
            let file = try await world.media().request(url: world.url)
            #expect(try Data(contentsOf: file) == world.file.content)
        }
    }

    @Test(arguments: ["garbage\r\n\r\n", "\0\0\0", ""])
    func `AM-10 Q-07 a response that is not HTTP is a typed error`(garbage: String) async throws {
        let world = try MediaWorld(answer: { _ in LoopbackServer.Response(steps: [.send(Data(garbage.utf8)), .close]) })
        try await world.run { (world) async throws in
            await #expect(throws: (any Error).self) {
                do {
                    _ = try await world.media().request(url: world.url)
                } catch let error as HTTPError {
                    throw error
                } catch let error as MediaError {
                    throw error
                } catch {
                    Issue.record("not a typed error: \(error)")
                }
            }
            #expect(world.names == [])
        }
    }

    @Test(arguments: ["https://127.0.0.1:PORT/a", "http://127.0.0.1:1/a", "http://no.such.host.invalid/a"])
    func `AM-10 no connection is a typed error`(text: String) async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            // A server without TLS.
            let (reservation, port) = try Socket.reservePort()
            defer { if let reservation { Socket.close(reservation) } }
            let listener = try Socket.listen(on: .ipv4, port: port).descriptor
            Thread.detachNewThread {
                while let connection = Socket.accept(listener) {
                    _ = Socket.write(Array("This is no handshake.".utf8), to: connection)
                    Socket.close(connection)
                }
            }
            defer { Socket.shutDown(listener) }
            let url = try #require(URL(string: text.replacingOccurrences(of: "PORT", with: String(port))))
            await #expect(throws: HTTPError.self) { try await world.media().request(url: url) }
            #expect(world.names == [])
        }
    }

    @Test(arguments: [
        "ftp://host/a", "data:text/plain,a", "about:blank", "http:", "http://", "not a url", "mailto:a@b", "x", "",
    ])
    func `AM-10 a URL that is not an HTTP URL is a typed error`(text: String) async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            guard let url = URL(string: text) else { return }
            let media = world.media()
            await #expect(throws: MediaError.unsupportedURL) { try await media.request(url: url) }
            #expect(media.cachedValue(url: url) == nil)
            await media.expectAtRest()
        }
    }

    @Test(arguments: [
        (MuxStoreError.FileOperation.synchronize, ENOSPC, MediaError.diskFull),
        (.status, EIO, .disk(.fileSystem(.status, code: EIO))),
    ])
    func `AM-10 an error of the file system at the end of a download is a typed error`(
        operation: MuxStoreError.FileOperation,
        code: Int32,
        error: MediaError
    ) async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let (file, isMoved) = (MediaName(world.url).file, Locked(false))
            let files = RecordingFileSystem { _, call in
                if call.operation == .rename, call.name == file { isMoved.withLock { $0 = true } }
                let isEnd = call.operation == .synchronize || (isMoved.withLock(\.self) && call.name == file)
                return isEnd && call.operation == operation && call.name.hasSuffix(file) ? .refuse(code) : nil
            }
            let media = world.media(durability: .full, fileSystem: files)
            await #expect(throws: error) { try await media.request(url: world.url) }
            #expect(world.server.requestCount == 1, "the error is permanent")
        }
    }

    @Test func `AM-10 the URL of a file is returned unchanged`() async throws {
        let world = try MediaWorld()
        try await world.run { (world) async throws in
            let url = URL(filePath: "/some/../where.jpg")
            let media = world.media()

            #expect(try await media.request(url: url) == url)
            #expect(media.cachedValue(url: url) == url)
            #expect(await media.loadCachedValue(url: url) == url)
            var watcher = media.progress(of: url).makeAsyncIterator()
            #expect(try await watcher.next()?.fraction == 1)
            #expect(try await watcher.next() == nil)
            #expect(world.server.requestCount == 0)
        }
    }

    @Test func `AM-10 watchers of a download that fails get the error`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return .text("", status: 404)
        })
        try await world.run { (world) async throws in
            let media = world.media()
            var watcher = media.progress(of: world.url).makeAsyncIterator()
            #expect(try await watcher.next() == AsyncMedia.Progress())
            let request = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            gate.openForGood(returning: ())

            await #expect(throws: HTTPError.self) { try await request.value }
            do {
                while try await watcher.next() != nil {}
                Issue.record("no error")
            } catch {
                #expect((error as? HTTPError)?.status?.code == 404)
            }
        }
    }

    @Test func `AM-10 a sign-out ends the progress of a download that waits for another download`() async throws {
        let gate = Gate<Void>()
        let world = try MediaWorld(answer: { _ in
            try? await gate.pass()
            return .text("", status: 404)
        })
        try await world.run { (world) async throws in
            let media = world.media(limits: .init(parallelDownloads: 1))
            let first = Task { try await media.request(url: world.url) }
            await gate.waitForCall()
            let other = world.url.appending(component: "other")
            var watcher = media.progress(of: other).makeAsyncIterator()
            #expect(try await watcher.next() == AsyncMedia.Progress())
            let second = Task { try await media.request(url: other) }
            #expect(await settled({ media.downloadSlots.waiting }, when: { $0 == 1 }) == 1)

            await world.repository.clearAll()

            await #expect(throws: MuxError.sessionEnded) { try await second.value }
            await #expect(throws: MuxError.sessionEnded) { while try await watcher.next() != nil {} }
            gate.openForGood(returning: ())
            _ = await first.result
        }
    }

    private func media(_ transport: any HTTPTransport, _ folder: URL, attempts: Int) -> AsyncMedia {
        AsyncMedia(
            directory: folder,
            transport: transport,
            retry: .immediate(maxAttempts: attempts),
            budget: nil,
            durability: .relaxed,
            repository: MuxRepository(store: MemoryStore())
        )
    }

    @Test func `DS-11 a download that its transport cancels is a typed error, and is retried`() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let url = try #require(URL(string: "http://host/picture.jpg"))
        let failures: [Result<HTTPReply, any Error>] = [.failure(CancellationError()), .failure(URLError(.cancelled))]

        let once = self.media(ScriptedTransport(failures), folder, attempts: 1)
        var watcher = once.progress(of: url).makeAsyncIterator()
        #expect(try await watcher.next() == AsyncMedia.Progress())
        await #expect(throws: MuxError.fetchCancelled) { try await once.request(url: url) }
        await #expect(throws: MuxError.fetchCancelled) { while try await watcher.next() != nil {} }
        await #expect(throws: MuxError.fetchCancelled) { try await once.request(url: url) }

        let reply = HTTPReply(status: 200, headers: [.contentLength: "1"], body: Data("x".utf8))
        let again = self.media(ScriptedTransport(failures, thereafter: reply), folder, attempts: 3)
        #expect(try Data(contentsOf: await again.request(url: url)) == Data("x".utf8))
    }

    @Test func `DS-07 an iteration over the progress ends when the media are deallocated`() async throws {
        let folder = FileManager.default.temporaryDirectory.appending(component: "MuxMedia-\(UUID().uuidString)")
        defer { try? FileManager.default.removeItem(at: folder) }
        let url = try #require(URL(string: "http://host/picture.jpg"))
        var media: AsyncMedia? = self.media(ScriptedTransport([]), folder, attempts: 1)
        let progress = try #require(media?.progress(of: url))
        var watcher = progress.makeAsyncIterator()
        #expect(try await watcher.next() == AsyncMedia.Progress())

        media = nil

        #expect(try await watcher.next() == nil)
        var late = progress.makeAsyncIterator()
        #expect(try await late.next() == AsyncMedia.Progress())
        #expect(try await late.next() == nil)
    }

    @Test func `AM-10 descriptions of errors contain no path and no URL`() throws {
        let errors: [MediaError] = [
            .unsupportedURL, .brokeOff, .contradiction, .tooLarge(limit: 1), .wrongDigest, .diskFull,
            .disk(.fileSystem(.open, code: 2)), .fetchedElsewhere, .removed,
        ]
        for error in errors {
            #expect(!"\(error)".isEmpty && error.localizedDescription == "\(error)")
            #expect(!"\(error)".contains("/"))
        }
    }

    @Test(arguments: [
        "http://h/a.jpg", "http://h/a.JPG", "http://h/", "http://h/..", "http://h/%2e%2e/%2e%2e/etc/passwd",
        "http://h/a.jpg?b=c.png", "http://h/a.j%00pg", "http://h/a." + String(repeating: "x", count: 300),
        "http://h/" + String(repeating: "%F0%9F%98%80", count: 2000) + ".mp4", "http://h/a.tar.gz", "http://h/.jpg",
        "http://h/a.part", "http://h/a.j/pg", "http://h/a.%C3%BC", "http://h/a.jpg/", "HTTP://H/a.jpg",
    ])
    func `AM-11 the file names for any URL stay in the folder`(text: String) throws {
        let url = try #require(URL(string: text))
        let name = MediaName(url)

        for text in [name.file, name.partial, name.sidecar] {
            #expect(text.utf8.count < 100)
            #expect(text.utf8.allSatisfy { (97...122).contains($0) || (48...57).contains($0) || $0 == 45 || $0 == 46 })
            #expect(!text.hasPrefix("."))
        }
        #expect(Set([name.file, name.partial, name.sidecar]).count == 3)
    }

    @Test func `AM-11 different URLs have different file names, which keep the extension`() throws {
        func name(_ text: String) throws -> String { MediaName(try #require(URL(string: text))).file }

        #expect(try name("http://h/a.jpg").hasSuffix(".jpg"))
        #expect(try name("http://h/a.MP4?x=y.png").hasSuffix(".mp4"))
        #expect(try name("http://h/a").allSatisfy(\.isHexDigit))
        #expect(try name("http://h/a.jpg#part") == name("http://h/a.jpg"))
        let different = [
            "http://h/a.jpg", "http://h/A.jpg", "http://h/a.jpeg", "https://h/a.jpg", "http://h/a.jpg?",
            "http://h/a.jpg?b",
            "http://h/%61.jpg", "http://h:80/a.jpg", "http://h/a.jpg/", "http://h/b/a.jpg",
        ]
        #expect(try Set(different.map(name)).count == different.count)
    }

    @Test func `AM-11 thousands of random URLs have different file names`() throws {
        var random = SplitMix64(state: 11)
        let alphabet = Array("ab./?=%&;:@")
        var urls: Set<String> = []
        for _ in 0..<20_000 {
            let path = String(
                (0..<Int.random(in: 0...12, using: &random)).compactMap { _ in alphabet.randomElement(using: &random) }
            )
            if let url = URL(string: "http://h/" + path) { urls.insert(url.absoluteString) }
        }
        #expect(urls.count > 5000)

        let names = Set(try urls.map { MediaName(try #require(URL(string: $0))).file })

        #expect(names.count == urls.count)
    }
}
