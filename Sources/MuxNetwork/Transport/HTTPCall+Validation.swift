import Foundation

extension HTTPCall {
    /// Checks that the call means on the wire what it says, so that no field can smuggle in another.
    ///
    /// - Returns: Where it goes.
    func validated() throws(HTTPError) -> HTTPOrigin {
        guard let origin = HTTPOrigin(self.url) else { throw .invalidURL }
        guard HTTPGrammar.isToken(self.method) else { throw .preparation(.invalidMethod) }
        for (name, value) in self.headers {
            guard HTTPGrammar.isToken(name) else { throw .invalidHeader(name: name) }
            guard HTTPGrammar.isFieldValue(value) else { throw .invalidHeader(name: name) }
        }
        return origin
    }
}
