// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import MuxKit
public import MuxNetwork

// Deprecated names, for clients that migrate from AsyncMux, Junction, RetryingOperation, Moose or a similar
// HTTP layer, and protocols of these packages for a task or a service as a single value. If a client's module
// and this file declare a type of the same name, the compiler uses the type of the client. With
// `@_disfavoredOverload`, the compiler prefers any other function to the function in this file. This file
// does not declare common names, such as `NetworkManager` and `ObjectMapper`: clients may declare these
// names.

// MARK: - Values, dependencies and retries

/// Junction's name for `DependentRunner`.
@available(*, deprecated, renamed: "DependentRunner")
public typealias Dependency<Value: Sendable> = DependentRunner<Value>

/// The name for `MultiplexerMap` with `onFetchMany:` in the callback-based predecessor of AsyncMux.
@available(*, deprecated, renamed: "MultiplexerMap", message: "Use MultiplexerMap(onFetchMany:)")
public typealias MultiRequester<Key: Hashable & Sendable, Value: Sendable> = MultiplexerMap<Key, Value>

/// AsyncMux's spelling of `SilenceableError`.
@available(*, deprecated, renamed: "SilenceableError")
public typealias SilencableError = SilenceableError

extension RunResult {
    /// Junction's name for `output(_:)`.
    @available(*, deprecated, renamed: "output(_:)")
    public static func success(_ output: Output) -> RunResult { .output(output) }

    /// Junction's name for `badDependency`.
    @available(*, deprecated, renamed: "badDependency")
    public static var dependencyRequiresRefresh: RunResult { .badDependency }
}

extension RunnerPolicy {
    /// Junction's name of the default policy of a runner.
    @available(*, deprecated, renamed: "init()")
    public static var `default`: RunnerPolicy { .init() }
}

extension DependentRunner {
    /// Junction's label for `policy`.
    @available(*, deprecated, renamed: "init(policy:)")
    public init(configuration: RunnerPolicy) { self.init(policy: configuration) }
}

extension Task where Success == Never, Failure == Never {
    /// `inject(dependency:_:refresh:)` with closures of two arguments, as in Junction; `refresh` returns a
    /// dependency.
    ///
    /// - Parameters:
    ///   - dependency: The runner of the dependency.
    ///   - operation: Does the work, on the caller's executor.
    ///   - refresh: Makes a dependency if this call starts the update; receives the dependency to replace,
    ///     `nil` if absent.
    /// - Returns: The output of the operation.
    /// - Throws: The error of the operation or the refresh, `RunnerError`, `MuxError/fetchCancelled`, or
    ///   `CancellationError`.
    @_disfavoredOverload
    @available(*, deprecated, message: "Use inject(dependency:_:refresh:) with closures of one argument")
    public static nonisolated(nonsending) func inject<Value: Sendable, Output: Sendable>(
        dependency: DependentRunner<Value>,
        _ operation: (Value, RunnerPolicy.Call) async throws -> RunResult<Output>,
        refresh: (Value?, RunnerPolicy.Call) async throws -> Value
    ) async throws -> Output {
        try await dependency.run(operation) { refused, context in
            .updatedDependency(try await refresh(refused, context))
        }
    }

    /// `retry(_:on:wakingOn:providers:while:log:clock:operation:)` as a function of `Task`.
    ///
    /// - Parameters:
    ///   - policy: The number of attempts and the delays.
    ///   - operation: The work, on the caller's executor.
    /// - Returns: The output of the operation.
    /// - Throws: `RetryError`, or `CancellationError`.
    @_disfavoredOverload
    @available(*, deprecated, message: "Use the function retry(_:operation:)")
    public static nonisolated(nonsending) func retry<Output>(
        _ policy: RetryPolicy = .web,
        operation: () async throws -> Output
    ) async throws -> Output {
        try await MuxKit.retry(policy) { _ in try await operation() }
    }
}

// MARK: - Typed HTTP layers

extension HTTPMethod {
    /// Moose's spelling of `get`.
    @available(*, deprecated, renamed: "get")
    public static var GET: HTTPMethod { .get }

    /// Moose's spelling of `head`.
    @available(*, deprecated, renamed: "head")
    public static var HEAD: HTTPMethod { .head }

    /// Moose's spelling of `post`.
    @available(*, deprecated, renamed: "post")
    public static var POST: HTTPMethod { .post }

    /// Moose's spelling of `put`.
    @available(*, deprecated, renamed: "put")
    public static var PUT: HTTPMethod { .put }

    /// Moose's spelling of `patch`.
    @available(*, deprecated, renamed: "patch")
    public static var PATCH: HTTPMethod { .patch }

    /// Moose's spelling of `delete`.
    @available(*, deprecated, renamed: "delete")
    public static var DELETE: HTTPMethod { .delete }

    /// Moose's spelling of `options`.
    @available(*, deprecated, renamed: "options")
    public static var OPTIONS: HTTPMethod { .options }
}

/// Moose's spelling of `HTTPEndpoint`.
@available(*, deprecated, renamed: "HTTPEndpoint")
public typealias HTTPEndPoint = HTTPEndpoint

extension HTTPRequest {
    /// Moose's spelling of `endpoint`.
    @available(*, deprecated, renamed: "endpoint")
    public var endPoint: HTTPEndpoint { self.endpoint }
}

extension HTTPHost {
    /// Moose's spelling of `HTTPHost/init(_:)`.
    @available(*, deprecated, renamed: "init(_:)")
    public static func specific(_ text: String) -> HTTPHost { HTTPHost(text) }
}

/// Moose's name for `HTTPHeaders/Name`.
@available(*, deprecated, renamed: "HTTPHeaders.Name")
public typealias HTTPHeaderKey = HTTPHeaders.Name

/// Moose's name for `HTTPMediaType`.
@available(*, deprecated, renamed: "HTTPMediaType")
public typealias HTTPMimeType = HTTPMediaType

/// Moose's name for `HTTPStatus`.
@available(*, deprecated, renamed: "HTTPStatus")
public typealias HTTPStatusCode = HTTPStatus

/// Moose's name for `HTTPMultipart`.
@available(*, deprecated, renamed: "HTTPMultipart")
public typealias HTTPMultipartData = HTTPMultipart

/// Moose's name for `HTTPToken`.
@available(*, deprecated, renamed: "HTTPToken")
public typealias TokenRepresentable = HTTPToken

/// Moose's name for `HTTPAuthenticator`.
@available(*, deprecated, renamed: "HTTPAuthenticator")
public typealias NetworkAuthentificator = HTTPAuthenticator

/// Moose's name for `HTTPClient/Configuration`.
@available(*, deprecated, renamed: "HTTPClient.Configuration")
public typealias NetworkSessionConfiguration = HTTPClient.Configuration

/// Moose's name for `HTTPError`.
@available(*, deprecated, renamed: "HTTPError")
public typealias NetworkSessionFailure = HTTPError

// MARK: - A task and its update as a single value

/// A task with a dependency, and the update of the dependency, as a single value.
///
/// ```swift
/// struct LoadPage: DependentOperation {
///     func run(_ token: Token, _ call: RunnerPolicy.Call) async throws -> RunResult<Page> { … }
///     func refresh(_ refused: Token?, _ call: RunnerPolicy.Call) async throws -> UpdateResult<Token> { … }
/// }
/// let page = try await runner.run(LoadPage())
/// ```
public protocol DependentOperation<Dependency, Output> {
    /// The type of the dependency.
    associatedtype Dependency: Sendable
    /// The type of the output.
    associatedtype Output: Sendable

    /// The time-out of the call; see the method `run(timeout:_:update:)` of `DependentRunner`.
    var timeout: Duration? { get }

    /// Does the work.
    ///
    /// - Parameters:
    ///   - dependency: The current dependency.
    ///   - call: The history of the call.
    /// - Returns: The output, or a refusal of the dependency.
    /// - Throws: An error for the caller; a `BadDependencyError` is a refusal.
    nonisolated(nonsending) func run(
        _ dependency: Dependency,
        _ call: RunnerPolicy.Call
    ) async throws -> RunResult<Output>

    /// Makes a dependency if this call starts the update.
    ///
    /// - Parameters:
    ///   - refused: The dependency to replace; `nil` if absent.
    ///   - call: The history of the call.
    /// - Returns: The dependency, or the refusal of the update.
    /// - Throws: The error for the calls that wait for the update; a `BadDependencyError` is a refusal.
    nonisolated(nonsending) func refresh(
        _ refused: Dependency?,
        _ call: RunnerPolicy.Call
    ) async throws -> UpdateResult<Dependency>
}

extension DependentOperation {
    /// `nil`: no time-out.
    public var timeout: Duration? { nil }
}

extension DependentRunner {
    /// Runs an operation with the dependency; runs the operation's update if this call starts the update.
    ///
    /// - Parameter operation: The task, the update and the time-out of the call.
    /// - Returns: The output of the operation.
    /// - Throws: The error of the operation or of its update, `RunnerError`, `MuxError/fetchCancelled`, or
    ///   `CancellationError`.
    public nonisolated(nonsending) func run<Output: Sendable>(
        _ operation: some DependentOperation<Dependency, Output>
    ) async throws -> Output {
        try await self.run(timeout: operation.timeout) { dependency, context in
            try await operation.run(dependency, context)
        } update: { refused, context in
            try await operation.refresh(refused, context)
        }
    }
}

// MARK: - An authorization server as a single value

/// The operations of an authorization server, for use by an ``OAuthAccount``.
public protocol OAuthService<AccessToken, RefreshToken>: Sendable {
    /// The token that authorizes requests.
    associatedtype AccessToken: Codable & Sendable
    /// The token that obtains access tokens.
    associatedtype RefreshToken: Codable & Sendable

    /// Asks the user to sign in.
    ///
    /// - Returns: The tokens of a new session.
    /// - Throws: An error if the sign-in failed; see `RunnerError/signInFailed(underlying:)`.
    func authorize() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Asks the user to sign in, for a reason that the app can show.
    ///
    /// The default implementation calls ``authorize()``.
    ///
    /// - Parameter reason: The reason for the sign-in.
    /// - Returns: The tokens of a new session.
    /// - Throws: The errors of ``authorize()``.
    func authorize(because reason: OAuthStatus.SignInReason) async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Lets the user edit their profile at the server, which issues new tokens for the new profile.
    ///
    /// - Returns: The new tokens.
    /// - Throws: Any error.
    func editProfile() async throws -> OAuthSignIn<AccessToken, RefreshToken>

    /// Makes an access token with a refresh token.
    ///
    /// - Parameter token: The current refresh token.
    /// - Returns: The access token, and the next refresh token if the server rotates refresh tokens.
    /// - Throws: A `BadDependencyError` if the server refuses the token; any other error if another attempt
    ///   may succeed.
    func refresh(_ token: RefreshToken) async throws -> OAuthRenewal<AccessToken, RefreshToken>

    /// Ends the session at the server, such as by a revocation of the tokens (RFC 7009).
    ///
    /// - Throws: Any error; the local session has already ended.
    func logout() async throws
}

extension OAuthService {
    /// The same as ``authorize()``.
    public func authorize(
        because reason: OAuthStatus.SignInReason
    ) async throws -> OAuthSignIn<AccessToken, RefreshToken> {
        try await self.authorize()
    }
}

/// A user's account at a server: sign-in, profile, refresh and sign-out.
///
/// ```swift
/// let account = OAuthAccount(MyService(), store: .protectedFile(named: "session"))
/// try await account.authorize()
/// let page = try await account.runner.run { access in … }
/// try await account.logout()
/// ```
///
/// **Concurrent calls** share sign-ins and refreshes, as calls of ``runner`` do.
public struct OAuthAccount<Service: OAuthService>: Sendable {
    /// Runs tasks with the account's access token.
    public let runner: OAuthDependentRunner<Service.AccessToken, Service.RefreshToken>

    private let service: Service

    /// Makes an account.
    ///
    /// - Parameters:
    ///   - service: The operations of the authorization server.
    ///   - store: Keeps the tokens between launches.
    ///   - lease: Prevents simultaneous renewals by processes that share the store; `nil` for the lease of
    ///     the store.
    ///   - repository: The repository of the tokens' session.
    ///   - policy: The limits and times of the ``runner``.
    public init(
        _ service: Service,
        store: any TokenStore = .inMemory,
        lease: (any MuxLease)? = nil,
        repository: MuxRepository = .shared,
        policy: RunnerPolicy = .onePerCall
    ) {
        self.service = service
        self.runner = OAuthDependentRunner(
            store: store,
            lease: lease,
            repository: repository,
            policy: policy,
            refreshAccess: { try await service.refresh($0) },
            signIn: { reason in try await service.authorize(because: reason) }
        )
    }

    /// Whether a session exists, without a request or a sign-in: see `OAuthDependentRunner/status`.
    public var status: OAuthStatus {
        get async { await self.runner.status }
    }

    /// The current ``status``, then each change; the sequence ends when the runner is deallocated.
    public var statuses: OAuthStatus.Changes { self.runner.statuses }

    /// Asks the user to sign in, unless the account has usable tokens.
    ///
    /// If the renewal of the access token is due, the call renews the access token with the refresh token.
    ///
    /// - Throws: The error of the service's `refresh`, `RunnerError`
    ///   (`RunnerError/signInFailed(underlying:)` with the error of the sign-in), `MuxError/fetchCancelled`,
    ///   or `CancellationError`.
    public func authorize() async throws { try await self.runner.run { _ in .output(()) } }

    /// Lets the user edit their profile, and uses the tokens that the server issues for the new profile.
    ///
    /// - Throws: The error of the service, or a `RunnerError`, such as
    ///   `RunnerError/tokensNotStored(underlying:)`; `RunnerError/signedOut` after a sign-out during the
    ///   edit.
    public func editProfile() async throws {
        try await self.runner.set { try await self.service.editProfile() }
    }

    /// Renews the access token, even if the current token is valid.
    ///
    /// - Throws: The errors of ``authorize()``.
    public func refresh() async throws { try await self.runner.renew() }

    /// Ends the session, first locally, then at the server.
    ///
    /// If the local sign-out is refused, such as by an outbox, the session continues, and the service is not
    /// called.
    ///
    /// - Returns: The failures of the local sign-out; see `MuxRepository/clearAll()`.
    /// - Throws: The error of the service's `logout`, after the end of the local session.
    @discardableResult
    public func logout() async throws -> MuxRepository.ClearReport {
        let report = await self.runner.signOut()
        if !report.isRefused { try await self.service.logout() }
        return report
    }
}
