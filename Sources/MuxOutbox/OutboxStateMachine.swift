/// The states and the order of all changes of one outbox.
///
/// A change belongs to a *lane*, except a change without a known lane, which is never sent. The changes of a
/// lane are sent one at a time, in the order of their addition, without the failed and the blocked changes.
/// Lanes are independent of each other.
///
/// The log calls the methods of the section "Records" for records of all processes. The methods
/// ``beginAttempt(_:at:)`` and ``endAttempt(_:_:)`` concern only attempts of this process.
package struct OutboxStateMachine: Sendable, Hashable {
    /// The identity of a change.
    package typealias ID = String

    /// The durable state of a change.
    package struct Progress: Sendable, Hashable, Codable {
        package enum Status: String, Sendable, Hashable, Codable {
            /// The change waits for its turn, or for the next attempt.
            case waiting
            /// An attempt has begun; its outcome is not known yet.
            case sending
            /// The server refused the change, or no further attempt is permitted.
            case refused
            /// The change reached its age limit before a confirmation.
            case expired
            /// The outcome of an attempt was lost, and a repetition could apply the change twice.
            case unknown
        }

        package var status = Status.waiting
        package var attempts = 0
        /// The number of attempts before the last request of the app for further attempts.
        package var formerAttempts = 0
        /// Whether the server may have applied the change in an earlier attempt.
        package var mayHaveArrived = false
        /// The idempotency key of the attempts; the identity of the change until a retry replaces the key.
        package var key: String
        /// The description of the error that caused the failure; `nil` without a failure or a known error.
        package var message: String?
        /// The wall-clock time from which the age counts, in seconds since 1970.
        package var since: Double

        package init(key: String, since: Double) {
            self.key = key
            self.since = since
        }

        /// Whether the change waits or is being sent; otherwise the change has failed.
        package var isPending: Bool { self.status == .waiting || self.status == .sending }
    }

    /// A change.
    package struct Item: Sendable, Hashable {
        package let id: ID
        /// The lane; `nil` if unknown, such as for a damaged record.
        package let lane: String?
        /// The number of the session of the addition.
        ///
        /// A damaged part of the file has the session at the time of the read. If no readable record precedes
        /// the damage, the damage joins each new session that a record or the repository reports, until a
        /// readable record is in the file. A sign-out drops the damage.
        package fileprivate(set) var session: UInt64
        package var progress: Progress
        /// The monotonic time in nanoseconds from which the change is not sent.
        package var expiry: Int64
        /// Whether this version of the app can read the change.
        package var isReadable: Bool
        /// Whether an attempt of this process is running.
        package fileprivate(set) var isInFlight = false
        /// Whether an earlier failed or blocked change of the lane prevents the sending of this change.
        package fileprivate(set) var isBlocked = false
        /// The position in the order of all additions.
        package fileprivate(set) var number: UInt64 = 0

        /// Whether the change waits, and the server cannot have applied the change according to the records
        /// that this process has read.
        package var isUnsent: Bool { self.progress.status == .waiting && !self.progress.mayHaveArrived }

        package init(
            id: ID,
            lane: String?,
            session: UInt64,
            progress: Progress,
            expiry: Int64 = .max,
            isReadable: Bool = true
        ) {
            self.id = id
            self.lane = lane
            self.session = session
            self.progress = progress
            self.expiry = expiry
            self.isReadable = isReadable
        }
    }

    private var items: [ID: Item] = [:]
    /// The changes of each lane, in the order of their addition.
    private var lanes: [String: [ID]] = [:]
    /// The lanes with a running sender.
    private var activeLanes: Set<String> = []
    /// Lanes without a sender that may have a change to send, in order.
    private var candidates: [String] = []
    /// The blocked changes of each lane.
    private var blockedIDs: [String: [ID]] = [:]
    /// The elements of ``candidates``.
    private var candidateSet: Set<String> = []
    /// The number of the last addition.
    private var lastNumber: UInt64 = 0
    /// The number of the current session.
    package private(set) var session: UInt64 = 0

    package init() {}

    package subscript(id: ID) -> Item? { self.items[id] }

    /// All changes, in the order of their addition.
    package var all: [Item] { self.items.values.sorted { $0.number < $1.number } }

    /// The number of changes, including failed and unreadable changes.
    package var count: Int { self.items.count }

    /// The changes of a lane, in the order of their addition.
    package func changes(in lane: String) -> [Item] { (self.lanes[lane] ?? []).compactMap { self.items[$0] } }

    /// Whether a lane without a sender may have a change to send.
    package var hasCandidates: Bool { !self.candidates.isEmpty }

    /// The number of lanes with a running sender.
    package var senderCount: Int { self.activeLanes.count }

    // MARK: - Records

    /// Adds a change of this or another process.
    ///
    /// - Returns: Whether the change was added; `false` for a known change, or for a change of an earlier
    ///   session.
    @discardableResult
    package mutating func addItem(_ item: Item) -> Bool {
        guard self.items[item.id] == nil, item.session >= self.session else { return false }
        var item = item
        self.lastNumber += 1
        item.number = self.lastNumber
        self.items[item.id] = item
        if let lane = item.lane {
            self.lanes[lane, default: []].append(item.id)
            self.addCandidate(lane)
        }
        return true
    }

    /// Replaces the state of a change by the state of a record.
    ///
    /// No effect on a change in flight: the attempt determines the state of the change.
    package mutating func setProgress(_ id: ID, to progress: Progress) {
        guard var item = self.items[id], !item.isInFlight else { return }
        item.progress = progress
        self.replace(item)
    }

    /// Marks a change that this version of the library or of the app cannot read, and must not send.
    package mutating func markUnreadable(_ id: ID) {
        guard var item = self.items[id] else { return }
        item.isReadable = false
        self.replace(item)
    }

    /// Sets the monotonic time in nanoseconds from which the change is not sent.
    package mutating func setExpiry(_ expiry: Int64, of id: ID) { self.items[id]?.expiry = expiry }

    /// Removes a change.
    ///
    /// - Returns: The removed change; `nil` without such a change.
    @discardableResult
    package mutating func removeItem(_ id: ID) -> Item? {
        guard let item = self.items.removeValue(forKey: id) else { return nil }
        if let lane = item.lane {
            if let place = self.lanes[lane]?.firstIndex(of: id) { self.lanes[lane]?.remove(at: place) }
            if self.lanes[lane]?.isEmpty ?? false { self.lanes[lane] = nil }
            self.removeBlockMarks(lane)
        }
        return item
    }

    /// Begins a session, and drops the changes of earlier sessions.
    ///
    /// - Parameters:
    ///   - session: The number of the session.
    ///   - sparesDamage: Whether damaged changes, which have no lane, join the new session instead.
    /// - Returns: The dropped changes; empty if the session has begun already.
    package mutating func beginSession(_ session: UInt64, sparesDamage: Bool = false) -> [Item] {
        guard session > self.session else { return [] }
        self.session = session
        var dropped: [Item] = []
        for item in self.items.values where item.session < session {
            if sparesDamage, item.lane == nil {
                self.items[item.id]?.session = session
            } else {
                self.removeItem(item.id)
                dropped.append(item)
            }
        }
        return dropped
    }

    // MARK: - Sending

    /// Ends the attempts in the state `sending` that do not run in this process.
    ///
    /// The caller must hold the lease, so that no other process may be sending, and must have read all
    /// records. The outcomes of these attempts are lost.
    ///
    /// - Parameter isIdempotent: Whether the server applies a change at most once for each key.
    /// - Returns: The changes with a new state, to be written.
    package mutating func resolveInterruptedAttempts(isIdempotent: Bool) -> [Item] {
        let interrupted = self.items.values.filter {
            $0.progress.status == .sending && !$0.isInFlight && $0.isReadable
        }
        return interrupted.map { item in
            var item = item
            item.progress.mayHaveArrived = true
            item.progress.status = isIdempotent ? .waiting : .unknown
            self.replace(item)
            return item
        }
    }

    /// Marks lanes with a change to send as active, up to `limit` active lanes.
    ///
    /// - Returns: The lanes; the caller must start a sender for each lane.
    package mutating func startLanes(upTo limit: Int) -> [String] {
        var started: [String] = []
        var count = 0
        for lane in self.candidates {
            guard self.activeLanes.count < limit else { break }
            count += 1
            self.candidateSet.remove(lane)
            guard !self.activeLanes.contains(lane), self.needsSender(lane) else { continue }
            self.activeLanes.insert(lane)
            started.append(lane)
        }
        self.candidates.removeFirst(count)
        return started
    }

    package enum NextAction: Sendable, Hashable {
        /// Send this change.
        case send(ID)
        /// Write that the change has expired, and request the next action.
        case expire(Item)
        /// End the sender of the lane: ``endSender(_:)`` must follow.
        case rest
    }

    /// Returns the next action for the sender of the lane, at the monotonic time `now` in nanoseconds.
    package mutating func nextChange(in lane: String, at now: Int64) -> NextAction {
        guard self.activeLanes.contains(lane) else { return .rest }
        guard var item = self.firstSendableItem(in: lane) else { return .rest }
        guard item.expiry <= now else { return .send(item.id) }
        item.progress.status = .expired
        self.replace(item)
        return .expire(item)
    }

    /// Ends the sender of the lane; the lane becomes a candidate again if a change is left to send.
    package mutating func endSender(_ lane: String) {
        if self.activeLanes.remove(lane) != nil, self.needsSender(lane) { self.addCandidate(lane) }
    }

    /// Counts an attempt that is about to begin, at the monotonic time `now` in nanoseconds.
    ///
    /// The change may be in flight already: after a refused token, the same delivery attempts again.
    ///
    /// - Returns: The change; the caller writes the new state before the request. `nil` if the change has
    ///   ended or failed, is too old, unreadable or blocked, or has the state `sending` from another process.
    package mutating func beginAttempt(_ id: ID, at now: Int64) -> Item? {
        guard var item = self.items[id], item.isReadable, item.session >= self.session, !item.isBlocked,
            item.expiry > now, item.isInFlight || item.progress.status == .waiting
        else { return nil }
        item.isInFlight = true
        item.progress.status = .sending
        item.progress.attempts += 1
        item.progress.message = nil
        self.items[id] = item
        return item
    }

    package enum Outcome: Sendable, Hashable {
        /// The attempt was counted, but no request was sent, because of the disk or the lease: the count is
        /// undone.
        case notBegun
        /// The app's closure returned: the server has the change.
        case confirmed
        /// The server did not process the change, or no request was sent.
        case unsent
        /// The server may have applied the change, and another attempt is permitted.
        case unclear
        /// The response was lost, and a repetition could apply the change twice.
        case unknown(String)
        /// The server refused the change, or another attempt would fail again.
        case refused(String, mayHaveArrived: Bool)
    }

    package enum EndAction: Sendable, Hashable {
        /// The change is not in flight: the change has ended already, or no attempt has begun.
        case ignore
        /// Write the end of the change.
        case writeEnd(Item)
        /// Write the state.
        case write(Item)
    }

    /// Applies the outcome of an attempt.
    package mutating func endAttempt(_ id: ID, _ outcome: Outcome) -> EndAction {
        guard var item = self.items[id], item.isInFlight else { return .ignore }
        item.isInFlight = false
        item.progress.status = .waiting
        switch outcome {
        case .confirmed:
            self.removeItem(id)
            return .writeEnd(item)
        case .notBegun: item.progress.attempts -= 1
        case .unsent: break
        case .unclear:
            item.progress.mayHaveArrived = true
        case .unknown(let message):
            item.progress.status = .unknown
            item.progress.mayHaveArrived = true
            item.progress.message = message
        case .refused(let message, let mayHaveArrived):
            item.progress.status = .refused
            item.progress.message = message
            item.progress.mayHaveArrived = item.progress.mayHaveArrived || mayHaveArrived
        }
        self.replace(item)
        return .write(item)
    }

    /// Refuses a change for which the policy permits no further attempt.
    ///
    /// - Returns: The change, to be written; `nil` if the change does not wait, such as after a discard.
    package mutating func refuseWaiting(_ id: ID, _ message: String) -> Item? {
        guard var item = self.items[id], item.progress.status == .waiting, !item.isInFlight else { return nil }
        item.progress.status = .refused
        item.progress.message = message
        self.replace(item)
        return item
    }

    // MARK: - The app

    /// Lets a failed change wait for further attempts.
    ///
    /// - Parameters:
    ///   - id: The change.
    ///   - key: The key of the further attempts if the server cannot have applied the change: the server may
    ///     have stored its refusal with the former key.
    ///   - since: The wall-clock time, in seconds since 1970.
    ///   - expiry: The monotonic time in nanoseconds from which the change is not sent.
    /// - Returns: The change, to be written; `nil` without a readable failed change.
    package mutating func resetForRetry(_ id: ID, key: String, since: Double, expiry: Int64) -> Item? {
        guard var item = self.items[id], item.isReadable, !item.progress.isPending else { return nil }
        if !item.progress.mayHaveArrived { item.progress.key = key }
        item.progress.status = .waiting
        item.progress.message = nil
        item.progress.formerAttempts = item.progress.attempts
        item.progress.since = since
        item.expiry = expiry
        self.replace(item)
        return item
    }

    /// Replaces the blocked changes of the lane.
    package mutating func block(_ blocked: Set<ID>, in lane: String) {
        self.removeBlockMarks(lane)
        let ids = (self.lanes[lane] ?? []).filter { blocked.contains($0) }
        for id in ids { self.items[id]?.isBlocked = true }
        if !ids.isEmpty { self.blockedIDs[lane] = ids }
    }

    // MARK: - Order

    /// The first change of a lane that may be sent now, if any.
    private func firstSendableItem(in lane: String) -> Item? {
        for id in self.lanes[lane] ?? [] {
            guard let item = self.items[id] else { continue }
            // Later changes wait for the end of an attempt, and for a version of the app that can read the
            // change.
            guard item.isReadable, !item.isInFlight else { return nil }
            switch item.progress.status {
            case .waiting: if !item.isBlocked { return item }
            case .sending: return nil
            case .refused, .expired, .unknown: continue
            }
        }
        return nil
    }

    /// Whether the first pending change of the lane has an attempt of another process, or of an earlier
    /// launch, without an outcome.
    package func isInterrupted(_ lane: String) -> Bool {
        let first = (self.lanes[lane] ?? []).lazy.compactMap { self.items[$0] }.first(where: \.progress.isPending)
        return first.map { $0.progress.status == .sending && !$0.isInFlight && $0.isReadable } ?? false
    }

    private func needsSender(_ lane: String) -> Bool {
        self.firstSendableItem(in: lane) != nil || self.isInterrupted(lane)
    }

    private mutating func replace(_ item: Item) {
        self.items[item.id] = item
        if let lane = item.lane { self.removeBlockMarks(lane) }
    }

    /// Removes the marks of blocked changes after a change in the lane; the sender asks the app again.
    private mutating func removeBlockMarks(_ lane: String) {
        for id in self.blockedIDs.removeValue(forKey: lane) ?? [] { self.items[id]?.isBlocked = false }
        self.addCandidate(lane)
    }

    /// Adds the lane to the candidates, unless the lane has a sender.
    private mutating func addCandidate(_ lane: String) {
        guard !self.activeLanes.contains(lane), self.candidateSet.insert(lane).inserted else { return }
        self.candidates.append(lane)
    }

    // MARK: - Invariants

    /// A description of a violated invariant; `nil` without a violation.
    package var violation: String? {
        for (lane, ids) in self.lanes {
            let changes = ids.compactMap { self.items[$0] }
            if changes.count != ids.count || changes.contains(where: { $0.lane != lane }) {
                return "lane \(lane) is wrong"
            }
            if Set(ids).count != ids.count { return "lane \(lane) repeats a change" }
            if changes.count(where: \.isInFlight) > 1 { return "two changes of lane \(lane) are in flight" }
        }
        let count = self.lanes.values.reduce(0) { $0 + $1.count }
        if count != self.items.values.count(where: { $0.lane != nil }) { return "a change has no lane" }
        if self.items.values.contains(where: { $0.session < self.session }) { return "a change has an ended session" }
        // A change that can be sent is found by the next ``startLanes(upTo:)``.
        for lane in self.lanes.keys where self.needsSender(lane) {
            if !self.activeLanes.contains(lane), !self.candidateSet.contains(lane) {
                return "lane \(lane) is forgotten"
            }
        }
        if self.items.values.contains(where: { $0.isInFlight && $0.progress.status != .sending }) {
            return "a change in flight is not being sent"
        }
        return nil
    }
}
