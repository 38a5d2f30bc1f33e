/// Decides the steps of a download, from the bytes on disk and the responses.
///
/// A 206 response is appended only if the offset equals the number of bytes on disk, and the strong validator
/// and the total length, where present, match the part on disk (RFC 9110, sections 13.1.5, 14 and 15.3.7). A
/// 200 or 203 response replaces the part on disk. A 416 response completes the file if the total length
/// equals the number of bytes on disk. After any other 206 or 416 response to a range request, the next
/// request asks for the whole file; a second such response ends the download with an error.
package struct DownloadStateMachine: Sendable, Equatable {
    /// The part of a file on disk.
    package struct Partial: Sendable, Equatable {
        /// The strong validator of the representation; without a validator the download cannot resume.
        package var validator: String?
        /// The length of the representation; `nil` if unknown.
        package var total: Int64?
        /// The number of bytes on disk.
        package var offset: Int64

        package init(validator: String? = nil, total: Int64? = nil, offset: Int64 = 0) {
            self.validator = validator
            self.total = total
            self.offset = offset
        }
    }

    /// The current part of the file on disk; empty before the first ``beginAttempt(with:)``.
    package private(set) var partial = Partial()
    /// Whether an attempt has begun, so that ``partial`` is known.
    package private(set) var hasBegun = false
    /// The maximum size of a file in bytes.
    private let limit: Int64
    /// Whether the body of the current response may be appended.
    private var isReceiving = false
    /// The offset at which the current response ends, as announced; `nil` without an announcement.
    private var end: Int64?
    /// Whether an inconsistent response to a range request has caused a restart from zero.
    private var hasRestarted = false

    /// The maximum number of bytes on disk so far.
    private var largestOffset: Int64 = 0
    /// The number of bytes by which the maximum has grown since the last ``beginAttempt(with:)``.
    package private(set) var gained: Int64 = 0

    /// Makes a state machine without a part on disk.
    package init(limit: Int64) { self.limit = limit }

    /// Sets the part that was found on disk, before a request; an unusable part counts as an empty part.
    package mutating func beginAttempt(with partial: Partial) {
        let isUsable =
            partial.offset > 0 && partial.validator != nil && partial.offset <= partial.total ?? .max
            && partial.total ?? 0 <= self.limit
        self.partial = isUsable ? partial : Partial()
        self.hasBegun = true
        self.isReceiving = false
        self.largestOffset = max(self.largestOffset, self.partial.offset)
        self.gained = 0
    }

    // MARK: - Asking

    /// The next step before a response.
    package enum Step: Sendable, Equatable {
        /// All bytes are on disk.
        case finish
        /// Request the whole file.
        case askForAll
        /// Request the remaining bytes, on condition that the representation is unchanged (`If-Range`).
        case ask(from: Int64, ifStill: String)
    }

    /// The next step, from the part on disk.
    package var nextStep: Step {
        guard self.partial.offset > 0, let validator = self.partial.validator else {
            return .askForAll
        }
        return self.partial.offset == self.partial.total ? .finish : .ask(from: self.partial.offset, ifStill: validator)
    }

    // MARK: - The head

    /// The step after the head of a response.
    package enum HeadAction: Sendable, Equatable {
        /// Append the body to the part on disk.
        case append
        /// Truncate the file, write or remove the sidecar, then write the body.
        case restart
        /// All bytes are already on disk.
        case finish
        /// The part on disk does not match: truncate the file and request the whole file.
        case askAgain
        /// The response has an error status, or another status without a part of the file.
        case refuse(status: Int)
        /// The server's responses are inconsistent, or the file is too large.
        case fail(MediaError)
    }

    /// Processes the head of a response.
    package mutating func received(_ head: DownloadHead) -> HeadAction {
        self.isReceiving = false
        switch head.status {
        case 200, 203: return self.receiveWhole(head)
        case 206: return self.receivePart(head)
        case 416: return self.receiveUnsatisfiedRange(head)
        default: return .refuse(status: head.status)
        }
    }

    private mutating func receiveWhole(_ head: DownloadHead) -> HeadAction {
        guard head.length ?? 0 <= self.limit else { return .fail(.tooLarge(limit: self.limit)) }
        self.partial = Partial(validator: head.validator, total: head.length)
        self.end = head.length
        self.isReceiving = true
        return .restart
    }

    private mutating func receivePart(_ head: DownloadHead) -> HeadAction {
        guard case .ask(let offset, let validator) = self.nextStep else { return .fail(.contradiction) }
        guard let range = head.range, let bounds = range.bounds, bounds.lowerBound == offset, !head.mayArriveDecoded,
            self.isCompatible(validator, head),
            range.total == nil || self.partial.total == nil || range.total == self.partial.total,
            bounds.upperBound < self.partial.total ?? .max,
            head.length == nil || head.length == Int64(bounds.count)
        else { return self.startOver() }
        let total = self.partial.total ?? range.total
        guard total ?? 0 <= self.limit else { return .fail(.tooLarge(limit: self.limit)) }
        self.partial.total = total
        self.end = bounds.upperBound + 1
        self.isReceiving = true
        return .append
    }

    private mutating func receiveUnsatisfiedRange(_ head: DownloadHead) -> HeadAction {
        guard case .ask(let offset, let validator) = self.nextStep else { return .refuse(status: head.status) }
        guard head.range?.bounds == nil, head.range?.total == offset, self.partial.total ?? offset == offset,
            self.isCompatible(validator, head)
        else { return self.startOver() }
        self.partial.total = offset
        return .finish
    }

    /// Whether a response matches the representation of `validator`; a response without an entity tag
    /// matches.
    private func isCompatible(_ validator: String, _ head: DownloadHead) -> Bool {
        head.validator ?? validator == validator && !head.hasUnusableTag
    }

    private mutating func startOver() -> HeadAction {
        guard !self.hasRestarted else { return .fail(.contradiction) }
        self.hasRestarted = true
        self.partial = Partial()
        return .askAgain
    }

    // MARK: - The body

    /// The reason to reject the next `count` bytes of the body; `nil` if the bytes may be appended.
    package func rejection(ofNext count: Int) -> MediaError? {
        guard self.isReceiving else { return .contradiction }
        let (end, overflow) = self.partial.offset.addingReportingOverflow(Int64(count))
        guard !overflow, end <= self.limit else { return .tooLarge(limit: self.limit) }
        return end <= self.end ?? .max ? nil : .contradiction
    }

    /// Adds `count` appended bytes to the part on disk.
    package mutating func appended(count: Int) {
        self.partial.offset += Int64(count)
        self.gained += max(0, self.partial.offset - self.largestOffset)
        self.largestOffset = max(self.largestOffset, self.partial.offset)
    }

    // MARK: - The end

    /// The step after the end of an exchange.
    package enum EndAction: Sendable, Equatable {
        /// All bytes are on disk.
        case finish
        /// Request the remaining bytes: the exchange ended without an error, but more bytes may follow.
        case askForRest
        /// The exchange ended too early, with or without an error, or had no body to append.
        case fail
    }

    /// Processes the end of an exchange.
    ///
    /// - Parameter inOrder: Whether the exchange ended without an error.
    /// - Returns: The next step.
    package mutating func ended(inOrder: Bool) -> EndAction {
        guard self.isReceiving else { return .fail }
        self.isReceiving = false
        if self.partial.offset == self.partial.total { return .finish }
        guard inOrder else { return .fail }
        // After an announced range, more bytes may follow. A body without an announced end is the whole file.
        if let end = self.end { return self.partial.offset == end ? .askForRest : .fail }
        self.partial.total = self.partial.offset
        return .finish
    }
}

/// The header fields of a response that concern a download.
package struct DownloadHead: Sendable, Equatable {
    package var status: Int
    /// The value of `Content-Length`; `nil` without a valid value, or if the body may arrive decoded.
    package var length: Int64?
    package var range: ContentRange?
    /// The strong entity tag; `nil` without a usable tag, or if the body may arrive decoded.
    package var validator: String?
    /// Whether the response has an entity tag that `If-Range` cannot use, such as a weak tag.
    package var hasUnusableTag = false
    /// Whether the body may arrive decoded from a content coding, so offsets are meaningless.
    package var mayArriveDecoded: Bool

    /// Reads the header fields of a response.
    package init(_ reply: HTTPReply) {
        self.status = reply.status
        self.mayArriveDecoded = !reply.headers.isIdentityCoded && !reply.isBodyAsSent.value
        self.range = reply.headers["Content-Range"].flatMap { ContentRange($0) }
        guard !self.mayArriveDecoded else { return }
        self.length = reply.headers[.contentLength].flatMap { HTTPGrammar.number($0) }
        // RFC 9110, section 13.1.5: `If-Range` cannot use a weak tag; an empty tag is unusable as well.
        guard let tag = reply.headers[.eTag].map({ HTTPGrammar.trimmed($0) }) else { return }
        if HTTPValidator.isStrongTag(tag), tag != "\"\"" { self.validator = tag } else { self.hasUnusableTag = true }
    }
}
