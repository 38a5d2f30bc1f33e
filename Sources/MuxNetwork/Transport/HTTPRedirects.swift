package import Foundation

/// Decides about the redirections of one request.
package struct HTTPRedirects: Sendable {
    /// What to do with a redirection.
    package enum Step: Sendable, Equatable {
        /// Follow it with the header fields as they are.
        case follow
        /// Follow it without the fields that carry credentials.
        case followWithoutCredentials
        /// Do not follow it.
        case refuse(HTTPError.RedirectRefusal)
    }

    private let origin: HTTPOrigin
    private let limit: Int
    private var current: HTTPOrigin
    private var count = 0
    /// Credentials that were dropped stay dropped, also when a later redirection leads back to the first origin.
    private var hasLeft = false

    package init(origin: HTTPOrigin, limit: Int) {
        self.origin = origin
        self.current = origin
        self.limit = limit
    }

    package mutating func redirected(to url: URL, carriesBody: Bool) -> Step {
        self.count += 1
        guard self.count <= self.limit else { return .refuse(.tooMany(limit: self.limit)) }
        guard let next = HTTPOrigin(url) else { return .refuse(.unknownScheme) }
        guard next.isSecure || !self.current.isSecure else { return .refuse(.insecure) }
        self.current = next
        self.hasLeft = self.hasLeft || next != self.origin
        guard self.hasLeft else { return .follow }
        return carriesBody ? .refuse(.carriesBody) : .followWithoutCredentials
    }
}
