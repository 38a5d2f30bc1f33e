/// What the head of an answer says about a download.
package struct DownloadHead: Sendable, Equatable {
    package var status: Int
    /// How long the body is, as announced; `nil` if nobody said, or if the body arrives decoded.
    package var length: Int64?
    package var range: ContentRange?
    /// The validator of what is sent: an entity tag that is strong.
    package var validator: String?
    /// Whether there is an entity tag that is no validator, so that nobody can say what the bytes belong to.
    package var hasWeakTag = false
    /// Whether the body arrives decoded from a content encoding, so that offsets mean nothing.
    package var isEncoded: Bool

    package init(
        status: Int,
        length: Int64? = nil,
        range: ContentRange? = nil,
        validator: String? = nil,
        isEncoded: Bool = false
    ) {
        self.status = status
        self.length = length
        self.range = range
        self.validator = validator
        self.isEncoded = isEncoded
    }

    /// Reads the header fields of an answer.
    package init(_ reply: HTTPReply) {
        self.status = reply.status
        self.isEncoded = !["", "identity"].contains(reply.header("Content-Encoding")?.lowercased() ?? "")
        self.range = reply.header("Content-Range").flatMap { ContentRange($0) }
        guard !self.isEncoded else { return }
        self.length = reply.header("Content-Length").flatMap { ContentRange.number($0) }
        // RFC 9110, section 13.1.5: a weak tag is of no use for If-Range; nor is one that everything has.
        guard let tag = reply.header("ETag").map({ HTTPGrammar.trimmed($0) }) else { return }
        if HTTPValidator.isStrongTag(tag), tag != "\"\"" { self.validator = tag } else { self.hasWeakTag = true }
    }
}
