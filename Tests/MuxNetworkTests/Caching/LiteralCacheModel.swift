/// RFC 9111, section 4, rule by rule: whether a private cache may use a stored response without validation.
///
/// The model parses every field itself and shares no code with the library. The verdict is `unknown` where a
/// field violates the grammar and no RFC defines the meaning. Times are whole seconds since 1970.
struct LiteralCacheModel {
    struct Field {
        /// In lower case.
        let name: String
        let value: String
    }

    enum Verdict: Equatable {
        /// The use is forbidden: the section and the reason.
        case forbidden(String)
        /// The response is fresh, and no rule forbids the use.
        case fresh
        case unknown
    }

    /// The state of the server when the response is used.
    enum Server {
        case notAsked
        case unreachable
        /// Status 500, 502, 503 or 504.
        case failing
    }

    /// The fields of the request that fetched the response.
    let asked: [Field]
    let askedAt: Int
    let receivedAt: Int
    let status: Int
    let answer: [Field]
    /// The cache's documented heuristic lifetime: a tenth of the time since the last change, at most a day.
    let heuristicFraction = 10
    let heuristicLimit = 86_400

    /// RFC 9110, section 15.1.
    private static let heuristicallyCacheable: Set = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501]
    /// The statuses of these tests that no RFC defines.
    private static let unregistered: Set = [299, 499, 599]

    /// Whether the response may be used for a request.
    func verdict(_ method: String, _ request: [Field], at now: Int, _ server: Server) -> Verdict {
        let control = LiteralDirectives(Self.lines("cache-control", self.answer))
        let wishes = LiteralDirectives(Self.lines("cache-control", request))
        let reason =
            self.storing(control) ?? self.matching(method, request)
            ?? self.consent(control, wishes) ?? self.wholeness(request)
            ?? self.staleness(control, wishes, now, server)
        if let reason { return .forbidden(reason) }
        let isPlain = (self.asked + request).allSatisfy { field in
            field.name != "range" && field.name != "cache-control" && !field.name.hasPrefix("if-")
        }
        guard isPlain, method == "GET", self.status == 200, !control.isCut, server == .notAsked else { return .unknown }
        // A cache may treat a response with two Expires fields as stale (4.2.1), and a no-cache with field
        // names like a no-cache without field names (5.2.2.4).
        guard Self.lines("expires", self.answer).count < 2, !control.has("no-cache"),
            case .known(let lifetime) = self.lifetime(control)
        else { return .unknown }
        return lifetime > self.age(at: now) ? .fresh : .unknown
    }

    private static func lines(_ name: String, _ fields: [Field]) -> [String] {
        fields.filter { $0.name == name }.map(\.value)
    }

    // MARK: - Sections 3 and 4.1

    /// The reason why the response must not have been stored.
    private func storing(_ control: LiteralDirectives) -> String? {
        if LiteralDirectives(Self.lines("cache-control", self.asked)).has("no-store") {
            return "5.2.1.5: the first request says no-store"
        }
        let mayUnderstand = control.text.contains("must-understand")
        if control.has("must-understand"), Self.unregistered.contains(self.status) {
            return "5.2.2.3: must-understand, and status \(self.status) is not"
        }
        if control.has("no-store"), !mayUnderstand || Self.unregistered.contains(self.status) {
            return "5.2.2.5: no-store"
        }
        let isMarked =
            control.isCut || ["public", "private", "max-age"].contains { control.has($0) }
            || !Self.lines("expires", self.answer).isEmpty
        if !isMarked, !Self.heuristicallyCacheable.contains(self.status) {
            return "3: status \(self.status) with nothing that permits to store it"
        }
        return nil
    }

    /// The reason why the response does not match the request.
    private func matching(_ method: String, _ request: [Field]) -> String? {
        guard method == "GET" || method == "HEAD" else { return "4: an unsafe method is written through" }
        for line in Self.lines("vary", self.answer) {
            // Neither "*" nor a field name can be quoted, so every comma is a separator.
            for member in line.split(separator: ",", omittingEmptySubsequences: true).map({ LiteralText.trimmed($0) }) {
                if member == "*" { return "4.1: Vary: *" }
                let name = member.lowercased()
                guard !name.isEmpty, name.utf8.allSatisfy({ LiteralText.isToken($0) }) else { continue }
                let (then, now) = (Self.selecting(name, self.asked), Self.selecting(name, request))
                if then != now { return "4.1: Vary: \(member)" }
            }
        }
        return nil
    }

    /// The value that `Vary` compares, with every normalization that 4.1 permits; `nil` without the field.
    private static func selecting(_ name: String, _ fields: [Field]) -> String? {
        let lines = self.lines(name, fields)
        guard !lines.isEmpty else { return nil }
        let members = lines.joined(separator: ",").split(separator: ",").map { LiteralText.trimmed($0) }
        let text = members.filter { !$0.isEmpty }.joined(separator: ",")
        return ["accept", "accept-encoding", "accept-language"].contains(name) ? text.lowercased() : text
    }

    /// The reason why every use requires validation.
    private func consent(_ control: LiteralDirectives, _ wishes: LiteralDirectives) -> String? {
        for directive in control.all where directive.name == "no-cache" {
            guard let argument = directive.argument else { return "5.2.2.4: no-cache" }
            let named = argument.split(separator: ",").map { LiteralText.trimmed($0).lowercased() }
            if let name = named.first(where: { !Self.lines($0, self.answer).isEmpty }) {
                return "5.2.2.4: no-cache for \(name), which the answer has"
            }
        }
        return wishes.has("no-cache") ? "5.2.1.4: the request says no-cache" : nil
    }

    // MARK: - Section 3.3

    /// The reason why the response does not contain all requested bytes.
    private func wholeness(_ request: [Field]) -> String? {
        guard self.status == 206 else { return nil }
        guard let range = Self.lines("range", request).first else { return "3.3: a part for a request for the whole" }
        guard let part = Self.lines("content-range", self.answer).first.flatMap({ LiteralText.numbers($0, "bytes ") }),
            let wish = LiteralText.numbers(range, "bytes="), part.count == 3, wish.count == 2
        else { return nil }
        guard wish[0] >= part[0], min(wish[1], part[2] - 1) <= part[1] else { return "3.3: other bytes" }
        return nil
    }

    // MARK: - Sections 4.2 and 5.2.1

    enum Lifetime {
        case known(Int)
        case unknown
    }

    /// The reason why the response is too old.
    private func staleness(
        _ control: LiteralDirectives,
        _ wishes: LiteralDirectives,
        _ now: Int,
        _ server: Server
    ) -> String? {
        guard case .known(let lifetime) = self.lifetime(control) else { return nil }
        let age = self.age(at: now)
        let times = "age \(age), lifetime \(lifetime)"
        let staleness = age - lifetime
        if server == .notAsked, let limit = wishes.longest("max-age"), age > limit {
            // RFC 8246, section 2.
            let isReload = limit == 0 && staleness < 0 && (control.has("immutable") || control.isCut)
            if !isReload { return "5.2.1.1: the request takes an age of \(limit): \(times)" }
        }
        if server == .notAsked, let minimum = wishes.shortest("min-fresh"), -staleness < minimum {
            return "5.2.1.3: the request wants \(minimum) more: \(times)"
        }
        guard staleness >= 0 else { return nil }
        if control.has("must-revalidate") { return "5.2.2.2: must-revalidate: \(times)" }
        switch server {
        case .unreachable: return nil
        case .failing:
            let granted = max(control.longest("stale-if-error") ?? -1, wishes.longest("stale-if-error") ?? -1)
            return staleness <= granted ? nil : "RFC 5861, 4: stale-if-error \(granted): \(times)"
        case .notAsked:
            let tolerated = wishes.has("max-stale", withArgument: false) ? .max : wishes.longest("max-stale") ?? -1
            // 5.2.1.1: a request with max-age and without max-stale does not accept a stale response.
            let granted = wishes.has("max-age") ? -1 : control.longest("stale-while-revalidate") ?? -1
            return staleness <= max(tolerated, granted) ? nil : "4.2.4: stale: \(times)"
        }
    }

    /// Section 4.2.1.
    private func lifetime(_ control: LiteralDirectives) -> Lifetime {
        if let maxAge = control.certain.first(where: { $0.name == "max-age" }) {
            // 4.2.1: a cache is encouraged to treat invalid freshness information as stale.
            if let seconds = LiteralText.delta(maxAge.argument) { return .known(seconds) }
            return maxAge.isQuoted ? .unknown : .known(0)
        }
        // The unreadable text may contain a max-age.
        guard !control.isCut else { return .unknown }
        let date = self.date
        if let expires = Self.lines("expires", self.answer).first {
            // 5.3: an invalid date is in the past.
            guard let time = LiteralText.date(expires, self.receivedAt) else { return .known(0) }
            return time.isCertain ? .known(max(0, time.seconds - date)) : .unknown
        }
        guard Self.heuristicallyCacheable.contains(self.status) || control.has("public") || control.has("private")
        else {
            return .known(0)
        }
        guard let changed = Self.lines("last-modified", self.answer).first else { return .known(0) }
        guard let time = LiteralText.date(changed, self.receivedAt), time.isCertain else { return .unknown }
        // Rounded up: the cache counts milliseconds.
        let interval = max(0, date - time.seconds)
        return .known(min((interval + self.heuristicFraction - 1) / self.heuristicFraction, self.heuristicLimit))
    }

    /// The time at which the server created the response: RFC 9110, section 6.6.1.
    private var date: Int {
        let date = Self.lines("date", self.answer).first.flatMap { LiteralText.date($0, self.receivedAt) }
        return date.map { $0.isCertain ? $0.seconds : self.receivedAt } ?? self.receivedAt
    }

    /// Section 4.2.3.
    private func age(at now: Int) -> Int {
        let apparentAge = max(0, self.receivedAt - self.date)
        let responseDelay = self.receivedAt - self.askedAt
        // 5.1: the first value of a list counts. An invalid value is ignored.
        let said = Self.lines("age", self.answer).joined(separator: ",").split(separator: ",").first
        let ageValue = LiteralText.delta(said.map { LiteralText.trimmed($0) }) ?? 0
        let correctedAgeValue = ageValue + responseDelay
        let correctedInitialAge = max(apparentAge, correctedAgeValue)
        let residentTime = now - self.receivedAt
        return correctedInitialAge + residentTime
    }
}
