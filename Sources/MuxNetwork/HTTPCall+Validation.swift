import Foundation

extension HTTPCall {
    /// Checks that the call means on the wire what it says, so that no field can smuggle in another.
    ///
    /// - Returns: Where it goes.
    func validated() throws(HTTPError) -> HTTPOrigin {
        guard let origin = HTTPOrigin(self.url) else { throw .invalidURL }
        guard Self.isToken(self.method) else { throw .invalidHeader(name: "method") }
        for (name, value) in self.headers {
            guard Self.isToken(name) else { throw .invalidHeader(name: name) }
            // RFC 9110, section 5.5: a value holds no control characters but the tab.
            guard value.utf8.allSatisfy({ $0 == 9 || ($0 >= 32 && $0 != 127) }) else {
                throw .invalidHeader(name: name)
            }
        }
        return origin
    }

    /// RFC 9110, section 5.6.2.
    private static func isToken(_ text: String) -> Bool {
        let marks = Set("!#$%&'*+-.^_`|~".utf8)
        return !text.isEmpty
            && text.utf8.allSatisfy { byte in
                switch byte {
                case 48...57, 65...90, 97...122: true
                default: marks.contains(byte)
                }
            }
    }
}
