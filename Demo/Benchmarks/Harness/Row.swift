/// One row of the table.
struct Row: Codable, Sendable {
    /// A figure to compare with.
    struct Reference: Codable, Sendable {
        let name: String
        let value: Double
        /// The figure divided by the limit, or the alternative divided by the figure.
        let ratio: Double
    }

    enum Unit: String, Codable, Sendable {
        case nanoseconds
        case bytes
        case percent
        case count
    }

    enum Verdict: String, Codable, Sendable {
        case met
        case missed
        /// The row has no goal.
        case none = ""
        case notCounted = "not counted"
    }

    let group: String
    let name: String
    let unit: Unit
    /// `nil` if the system does not permit the measurement.
    let figure: Double?
    /// The cheapest possible code.
    let limit: Reference?
    /// A typical hand-written alternative.
    let instead: Reference?
    let goal: String
    let verdict: Verdict
    /// Whether the figure is the same in every run, so that a check may fail.
    let isCount: Bool

    /// A row of a contest: `figure`, `limit` and `instead` are contestants.
    init(
        _ group: String,
        _ name: String,
        _ outcome: Outcome,
        unit: Unit = .nanoseconds,
        figure: Int,
        limit: (String, Int)? = nil,
        instead: (String, Int)? = nil,
        goals: [Goal] = []
    ) {
        self.init(
            group,
            name,
            unit: unit,
            figure: outcome.median(figure),
            limit: limit.map { name, index in
                Reference(name: name, value: outcome.median(index), ratio: outcome.ratio(of: figure, to: index))
            },
            instead: instead.map { name, index in
                Reference(name: name, value: outcome.median(index), ratio: outcome.ratio(of: index, to: figure))
            },
            goals: goals
        )
    }

    init(
        _ group: String,
        _ name: String,
        unit: Unit,
        figure: Double?,
        limit: Reference? = nil,
        instead: Reference? = nil,
        goals: [Goal] = [],
        isCount: Bool = false
    ) {
        self.group = group
        self.name = name
        self.unit = unit
        self.figure = figure
        self.limit = limit
        self.instead = instead
        self.isCount = isCount
        self.goal = goals.map { $0.text(unit) }.joined(separator: ", ")
        guard let figure else {
            self.verdict = .notCounted
            return
        }
        let isMet = goals.allSatisfy { $0.isMet(figure, limit: limit?.ratio, instead: instead?.ratio) }
        self.verdict = goals.isEmpty ? .none : isMet ? .met : .missed
    }

    /// A count that must equal `expected`; `nil` if the system does not permit the count.
    static func count(_ group: String, _ name: String, _ figure: Int?, expected: Int, instead: Reference? = nil) -> Row
    {
        Row(
            group,
            name,
            unit: .count,
            figure: figure.map(Double.init),
            instead: instead,
            goals: [.exactly(Double(expected))],
            isCount: true
        )
    }

    var isWrongCount: Bool { self.isCount && self.verdict == .missed }
}

/// The goal of a figure.
enum Goal: Sendable {
    /// At most this multiple of the limit.
    case timesLimit(Double)
    /// At least this many times as fast, or as small, as the hand-written alternative.
    case timesBetter(Double)
    case atMost(Double)
    case atLeast(Double)
    case exactly(Double)

    func isMet(_ figure: Double, limit: Double?, instead: Double?) -> Bool {
        switch self {
        case .timesLimit(let times): (limit ?? .infinity) <= times
        case .timesBetter(let times): (instead ?? 0) >= times
        case .atMost(let most): figure <= most
        case .atLeast(let least): figure >= least
        case .exactly(let number): figure == number
        }
    }

    func text(_ unit: Row.Unit) -> String {
        switch self {
        case .timesLimit(let times): "≤ \(Text.number(times)) × limit"
        case .timesBetter(let times): "≥ \(Text.number(times)) × instead"
        case .atMost(let most): "≤ \(Text.figure(most, unit))"
        case .atLeast(let least): "≥ \(Text.figure(least, unit))"
        case .exactly(let number): "\(Text.number(number))"
        }
    }
}
