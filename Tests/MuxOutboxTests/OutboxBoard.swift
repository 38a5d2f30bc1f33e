import MuxOutbox

/// A model of an app with an outbox: the machine in memory, the log on disk, requests in transit, and a server.
///
/// A kill loses the machine; a request of the killed process may still arrive.
struct OutboxBoard: Hashable, Sendable {
    typealias ID = OutboxStateMachine.ID
    typealias Item = OutboxStateMachine.Item

    /// Bugs of the code around the machine.
    enum Bug: String, CaseIterable, Sendable {
        case none = "no bug"
        case settlesNothing = "the attempts of a killed process are not settled"
        case trustsServer = "the server applies repetitions, and the policy says that it does not"
        case changesKey = "an attempt after a lost response has another key"
        case keepsSession = "the log does not see the sign-out"
        case sendsUnwritten = "a request is sent before its state is on disk"
        case dropsRefused = "a refused change is removed"
        case writesNoEnd = "the end of a confirmed change is not written"
        case ignoresOrder = "a lane sends its last change first"
    }

    enum Event: Hashable, Sendable {
        case add(String)
        case start
        case next(String)
        case begin(ID)
        /// The server applies the change, and the response arrives.
        case confirm(ID)
        /// The server applies the change, and the response is lost.
        case loseResponse(ID)
        /// The request does not arrive, which the client cannot know.
        case loseRequest(ID)
        case failUnsent(ID)
        case refuse(ID)
        /// A request of a killed process arrives.
        case arriveLate(Request)
        case kill
        case signOut
        case retry(ID)
        case discard(ID)
        case expireAll
    }

    struct Request: Hashable, Sendable {
        let id: ID
        let key: String
    }

    let bug: Bug
    /// Whether the server detects repetitions by the key.
    let hasKeys: Bool
    private var machine = OutboxStateMachine()
    /// The changes on disk, in the order of their addition.
    private var disk: [Item] = []
    private var diskSession: UInt64 = 0
    /// The session of the user at the server.
    private var session: UInt64 = 0
    private var now: Int64 = 0
    /// The change that each sender is about to send, and whether its request is in transit.
    private var sending: [String: ID] = [:]
    private var inTransit: Set<Request> = []
    private var late: Set<Request> = []
    /// The applied requests, in order.
    private var applied: [Request] = []
    private var lanes: [ID: String] = [:]
    private var sessions: [ID: UInt64] = [:]
    /// Changes with a request that may have reached the server.
    private var mayHaveArrived: Set<ID> = []
    /// The changes that the app or a sign-out removed.
    private var removed: Set<ID> = []
    private var retries = 0
    private var resting: String?
    private var keys = 0

    init(_ bug: Bug, hasKeys: Bool) {
        self.bug = bug
        self.hasKeys = hasKeys
    }

    /// Whether the outbox trusts the server to detect repetitions.
    private var isIdempotent: Bool { self.hasKeys || self.bug == .trustsServer }

    // MARK: - Events

    var events: [Event] {
        var events: [Event] = []
        if self.lanes.count < 3 { events += [.add("a"), .add("b")] }
        if self.session < 1, !self.lanes.isEmpty { events.append(.signOut) }
        if !self.lanes.isEmpty { events.append(.kill) }
        if self.now == 0, !self.lanes.isEmpty { events.append(.expireAll) }
        events.append(.start)
        for (lane, id) in self.sending.sorted(by: { $0.key < $1.key }) {
            guard !id.isEmpty else {
                events.append(.next(lane))
                continue
            }
            guard self.machine[id]?.isInFlight ?? false || self.inTransit.contains(where: { $0.id == id }) else {
                events.append(.begin(id))
                continue
            }
            events += [.confirm(id), .loseResponse(id), .loseRequest(id), .failUnsent(id), .refuse(id)]
        }
        for request in self.late.sorted(by: { $0.id < $1.id }) { events.append(.arriveLate(request)) }
        for item in self.machine.all {
            if !item.progress.isPending, self.retries < 1 { events.append(.retry(item.id)) }
            if !item.isInFlight, self.removed.isEmpty { events.append(.discard(item.id)) }
        }
        return events
    }

    /// Applies an event; returns a violation, or `nil`.
    mutating func apply(_ event: Event) -> String? {
        self.happen(event) ?? self.machine.violation ?? self.loss ?? self.stuck
    }

    private mutating func happen(_ event: Event) -> String? {
        switch event {
        case .add(let lane):
            let id = "\(self.lanes.count)"
            let item = Item(
                id: id,
                lane: lane,
                session: self.machine.session,
                progress: OutboxStateMachine.Progress(key: id, since: 0),
                expiry: 1
            )
            self.lanes[id] = lane
            self.sessions[id] = self.session
            self.disk.append(item)
            self.machine.addItem(item)
        case .start: for lane in self.machine.startLanes(upTo: 2) { self.sending[lane] = "" }
        case .next(let lane): self.next(lane)
        case .begin(let id): return self.begin(id)
        case .confirm(let id): return self.arrive(id) ?? self.end(id, .confirmed)
        case .loseResponse(let id):
            let violation = self.arrive(id)
            return violation ?? self.end(id, self.isIdempotent ? .unclear : .unknown(""))
        case .loseRequest(let id): return self.end(id, self.isIdempotent ? .unclear : .unknown(""))
        case .failUnsent(let id): return self.end(id, .unsent)
        case .refuse(let id): return self.end(id, .refused("", mayHaveArrived: false))
        case .arriveLate(let request):
            self.late.remove(request)
            return self.serve(request)
        case .kill: self.kill()
        case .signOut: self.signOut()
        case .retry(let id):
            self.retries += 1
            self.keys += 1
            let item = self.machine.resetForRetry(id, key: "new \(self.keys)", since: 0, expiry: .max)
            if let item { self.write(item) }
        case .discard(let id):
            self.machine.removeItem(id)
            self.disk.removeAll { $0.id == id }
            self.removed.insert(id)
        case .expireAll: self.now = 2
        }
        return nil
    }

    private mutating func write(_ item: Item) {
        guard let place = self.disk.firstIndex(where: { $0.id == item.id }) else { return }
        self.disk[place].progress = item.progress
        self.disk[place].expiry = item.expiry
    }

    private mutating func next(_ lane: String) {
        self.settle()
        switch self.machine.nextChange(in: lane, at: self.now) {
        case .send(let id):
            let last = self.machine.changes(in: lane).last { $0.progress.status == .waiting }?.id
            self.sending[lane] = self.bug == .ignoresOrder ? last ?? id : id
        case .expire(let item): self.write(item)
        case .rest:
            self.sending[lane] = nil
            if self.machine.isInterrupted(lane) { self.resting = lane }
            self.machine.endSender(lane)
        }
    }

    private mutating func begin(_ id: ID) -> String? {
        guard let lane = self.lanes[id] else { return nil }
        guard let item = self.machine.beginAttempt(id, at: self.now) else {
            self.sending[lane] = ""
            return nil
        }
        let flag = item.progress.mayHaveArrived
        var key = item.progress.key
        if self.bug == .changesKey, flag {
            self.keys += 1
            key = "other \(self.keys)"
        }
        if self.bug != .sendsUnwritten { self.write(item) }
        if self.sessions[id] != self.session { return "change \(id) is sent in another session" }
        if flag != self.mayHaveArrived.contains(id) { return "change \(id) is sent with a wrong flag" }
        self.inTransit.insert(Request(id: id, key: key))
        return nil
    }

    /// The request of a running attempt arrives.
    private mutating func arrive(_ id: ID) -> String? {
        self.inTransit.first { $0.id == id }.flatMap { self.serve($0) }
    }

    /// The server processes a request.
    private mutating func serve(_ request: Request) -> String? {
        if self.hasKeys, self.applied.contains(where: { $0.key == request.key }) { return nil }
        if self.applied.contains(where: { $0.id == request.id }), self.retries == 0 || self.hasKeys {
            return "change \(request.id) is applied twice"
        }
        let place = self.disk.firstIndex { $0.id == request.id } ?? 0
        let earlier = self.disk[..<place].filter { $0.lane == self.lanes[request.id] }
        let isPassed = earlier.contains { item in
            item.progress.isPending && !self.applied.contains { $0.id == item.id }
        }
        self.applied.append(request)
        return isPassed && self.retries == 0 ? "change \(request.id) is applied before an earlier change" : nil
    }

    private mutating func end(_ id: ID, _ outcome: OutboxStateMachine.Outcome) -> String? {
        self.inTransit = self.inTransit.filter { $0.id != id }
        switch outcome {
        case .unclear, .unknown: self.mayHaveArrived.insert(id)
        case .notBegun, .confirmed, .unsent, .refused: break
        }
        switch self.machine.endAttempt(id, outcome) {
        case .ignore: break
        case .writeEnd: if self.bug != .writesNoEnd { self.disk.removeAll { $0.id == id } }
        case .write(let item):
            self.write(item)
            if self.bug == .dropsRefused, case .refused = outcome {
                self.machine.removeItem(id)
                self.disk.removeAll { $0.id == id }
            }
        }
        if let lane = self.lanes[id] { self.sending[lane] = "" }
        return nil
    }

    private mutating func kill() {
        for request in self.inTransit {
            self.mayHaveArrived.insert(request.id)
            self.late.insert(request)
        }
        self.inTransit = []
        self.sending = [:]
        self.machine = OutboxStateMachine()
        for item in self.disk { self.machine.addItem(item) }
        for item in self.machine.beginSession(self.diskSession) { self.disk.removeAll { $0.id == item.id } }
    }

    /// A sender has the lease: the attempts of killed processes are settled.
    private mutating func settle() {
        guard self.bug != .settlesNothing else { return }
        for item in self.machine.resolveInterruptedAttempts(isIdempotent: self.isIdempotent) { self.write(item) }
    }

    private mutating func signOut() {
        self.session += 1
        // The requests of the session may still arrive.
        self.late.formUnion(self.inTransit)
        self.inTransit = []
        guard self.bug != .keepsSession else { return }
        self.diskSession = self.session
        for item in self.machine.beginSession(self.session) {
            self.removed.insert(item.id)
            self.disk.removeAll { $0.id == item.id }
        }
    }

    // MARK: - Invariants

    /// A change that is neither on disk nor applied, removed or dropped.
    private var loss: String? {
        let known = Set(self.disk.map(\.id) + self.applied.map(\.id)).union(self.removed)
        if let lost = self.lanes.keys.filter({ !known.contains($0) }).min() { return "change \(lost) is lost" }
        let confirmed = self.disk.first { item in
            self.machine[item.id] == nil && self.applied.contains { $0.id == item.id }
        }
        return confirmed.map { "change \($0.id) is confirmed and stays on disk" }
    }

    /// A lane with an interrupted change whose sender rests.
    private var stuck: String? {
        self.resting.map { "lane \($0) rests with an interrupted change" }
    }
}
