public import Foundation
public import MuxKit

extension AsyncMedia {
    /// Makes media that need no sign-in.
    ///
    /// - Parameters:
    ///   - directory: The folder, used by this object alone; made when it is first needed. `nil` for a folder of this app in
    ///     the caches folder.
    ///   - transport: What fetches.
    ///   - limits: How much of the disk and the network it may take.
    ///   - retry: How often a request is made again that got no answer, or one that says that the trouble may pass. A
    ///     connection that breaks off after some of the file has come is no failure; the download goes on at once.
    ///   - budget: What keeps a host from being asked again and again that is down; `nil` for nothing.
    ///   - durability: Whether a complete file is one that survives a power failure, too.
    ///   - repository: Whose sign-out removes the files.
    public init(
        directory: URL? = nil,
        transport: any HTTPTransport = URLSessionTransport(),
        limits: MediaLimits = .init(),
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared
    ) {
        self.init(
            directory: directory,
            limits: limits,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await transport.exchange(call, into: sink)
        }
    }

    /// Makes media that need a sign-in.
    ///
    /// ```swift
    /// let media = AsyncMedia(dependency: oauth) { call, token in
    ///     if call.url.host() == "media.example.org" { call.headers["Authorization"] = "Bearer \(token)" }
    /// }
    /// ```
    ///
    /// - Parameters:
    ///   - directory: The folder, used by this object alone; made when it is first needed. `nil` for a folder of this app in
    ///     the caches folder.
    ///   - dependency: Runs every request; a status of 401 makes it renew the dependency, once for all, and the download goes
    ///     on.
    ///   - transport: What fetches.
    ///   - limits: How much of the disk and the network it may take.
    ///   - retry: How often a request is made again that got no answer, or one that says that the trouble may pass. A
    ///     connection that breaks off after some of the file has come is no failure; the download goes on at once.
    ///   - budget: What keeps a host from being asked again and again that is down; `nil` for nothing.
    ///   - durability: Whether a complete file is one that survives a power failure, too.
    ///   - repository: Whose sign-out removes the files.
    ///   - authorize: Puts the dependency into a request. Called for every URL, so it looks at the host before it gives a
    ///     token away. The header fields that it sets stay behind when a redirection leads to another server.
    public init<Dependency: Sendable>(
        directory: URL? = nil,
        dependency: any DependencyRunner<Dependency>,
        transport: any HTTPTransport = URLSessionTransport(),
        limits: MediaLimits = .init(),
        retry: RetryPolicy = .web,
        budget: RetryBudget? = .shared,
        durability: MuxDurability = .full,
        repository: MuxRepository = .shared,
        authorize: @escaping @Sendable (inout HTTPCall, Dependency) -> Void
    ) {
        self.init(
            directory: directory,
            limits: limits,
            retry: retry,
            budget: budget,
            durability: durability,
            repository: repository,
            fileSystem: POSIXFileSystem()
        ) { call, sink in
            _ = try await dependency.run { value in
                var authorized = call
                authorize(&authorized, value)
                let added = authorized.headers.filter { call.headers[$0.key] != $0.value }
                authorized.credentialHeaders.formUnion(added.keys)
                return .output(try await transport.exchange(authorized, into: sink))
            }
        }
    }

    package init(
        directory: URL?,
        limits: MediaLimits,
        retry: RetryPolicy = .immediate(),
        budget: RetryBudget? = nil,
        durability: MuxDurability,
        repository: MuxRepository,
        fileSystem: any FileSystem,
        exchange: @escaping @Sendable @concurrent (HTTPCall, any HTTPSink) async throws -> Void
    ) {
        let standard = MuxStoreLocation.standard().deletingLastPathComponent().appending(component: "MuxMedia")
        let folder = MediaFolder(
            directory ?? standard,
            limits: limits,
            durability: durability,
            fileSystem: fileSystem,
            wallTime: repository.wallTime
        )
        self.init(
            core: MediaCore(folder: folder, repository: repository, retry: retry, budget: budget) { call, sink in
                try await exchange(call, sink)
            }
        )
    }
}
