import Foundation
import MuxKit
import NIOCore
import Valkey

/// A shared store over the official Valkey client, for services that already use this client.
///
/// Values are sent as text, because the client's `eval` takes text. Changes arrive on a separate connection:
/// until the end of this connection is detected, the machine continues with the values in its memory. An
/// engine that restarts from an older snapshot, or a replica in its place, may return entries that were
/// cleared after the snapshot. `MuxValkey` has neither fault.
struct ValkeyClientStore: MuxSharedStore {
    let client: ValkeyClient
    /// Distinguishes applications; without braces, which mark the part of a key that determines the slot of a
    /// cluster.
    let prefix: String
    private let machine = UUID().uuidString

    init(_ client: ValkeyClient, prefix: String) {
        self.client = client
        self.prefix = prefix
    }

    // MARK: - Calls

    func load(_ names: [MuxShared.Name]) async throws -> [MuxShared.Entry?] {
        var entries: [MuxShared.Entry?] = []
        for name in names { entries.append(Self.entry(try await self.run("return {told(found(), '')}", name)[0])) }
        return entries
    }

    func claim(
        _ name: MuxShared.Name,
        maximumAge: Duration?,
        digest: String?,
        for duration: Duration
    ) async throws -> MuxShared.Claim {
        let nonce = UUID().uuidString
        let limit = maximumAge.map { "\(Self.microseconds($0))" } ?? "1e18"
        let script = """
            refuseIfFull()
            local f = found(ARGV[1])
            if f and age(f) < math.min(tonumber(ARGV[3]), tonumber(f[3])) then return {'entry', 0, told(f, ARGV[4])} end
            local claim = redis.call('GET', KEYS[2])
            if claim and string.sub(claim, 38) == epochs() then return {'taken', redis.call('PTTL', KEYS[2]), told(f, ARGV[4])} end
            redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. epochs(), 'PX', ARGV[2])
            return {'granted', 0, told(f, ARGV[4])}
            """
        let milliseconds = "\(max(Self.microseconds(duration) / 1_000, 1))"
        let reply = try await self.run(script, name, [nonce, milliseconds, limit, digest.map { "=" + $0 } ?? ""])
        let entry = Self.entry(reply[2])
        switch Self.text(reply[0]) {
        case "entry":
            guard let entry else {
                // An entry by another version of this file is a miss.
                try await self.invalidate([.entry(name.key)])
                return try await self.claim(name, maximumAge: maximumAge, digest: digest, for: duration)
            }
            return .entry(entry)
        case "taken": return .taken(for: .milliseconds(Self.number(reply[1]) ?? 1), entry)
        default: return .granted(MuxShared.Ticket(name, nonce: nonce), entry)
        }
    }

    func put(_ entry: MuxShared.Entry, with ticket: MuxShared.Ticket) async throws -> Bool {
        let script = """
            if not stands(ARGV[1]) then return {0} end
            refuseIfFull()
            local claim, f = redis.call('GET', KEYS[2]), found()
            redis.call('DEL', KEYS[2])
            if string.sub(claim, 38) ~= epochs() or (ARGV[8] == '' and (not f or f[4] ~= ARGV[4])) then
                redis.call('PUBLISH', ARGV[6], ARGV[9])
                return {0}
            end
            redis.call('HSET', KEYS[1], 'epochs', epochs(), 'fetched', text(now() - ARGV[2]), 'ttl', ARGV[3], 'digest', ARGV[4],
                'facts', ARGV[5])
            if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'payload', ARGV[8]) end
            redis.call('EXPIRE', KEYS[1], 604800)
            redis.call('PUBLISH', ARGV[6], ARGV[7])
            return {1}
            """
        let key = ticket.name.key
        let facts = try JSONEncoder().encode(Facts(entry))
        let arguments = [
            ticket.nonce, "\(Self.microseconds(entry.age))", "\(Self.microseconds(entry.timeToLive))",
            "=" + entry.digest,
            String(decoding: facts, as: UTF8.self), self.channel, self.message("stored", .entry(key)),
            entry.payload.map { "=" + $0.base64EncodedString() } ?? "", self.message("released", .entry(key)),
        ]
        return Self.number(try await self.run(script, ticket.name, arguments)[0]) == 1
    }

    func giveUp(_ ticket: MuxShared.Ticket) async throws {
        let script = """
            if stands(ARGV[1]) then
                redis.call('DEL', KEYS[2])
                redis.call('PUBLISH', ARGV[2], ARGV[3])
            end
            return {0}
            """
        let released = self.message("released", .entry(ticket.name.key))
        _ = try await self.run(script, ticket.name, [ticket.nonce, self.channel, released])
    }

    func invalidate(_ scopes: [MuxShared.Scope]) async throws {
        let script = """
            for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end
            for i = 2, #ARGV do redis.call('PUBLISH', ARGV[1], ARGV[i]) end
            return {0}
            """
        let keys = scopes.flatMap { scope in
            if case .entry(let key) = scope {
                [self.key("v", Self.words(.entry(key))), self.key("c", Self.words(.entry(key)))]
            } else {
                [self.key("e", Self.words(scope))]
            }
        }
        try await self.client.eval(
            script: script,
            keys: keys,
            args: [self.channel] + scopes.map { self.message("invalidated", $0) }
        )
    }

    // MARK: - Changes

    func changes() -> AsyncStream<MuxShared.Change> {
        let (client, channel, machine) = (self.client, self.channel, self.machine)
        return AsyncStream { continuation in
            let listener = Task {
                while !Task.isCancelled {
                    try? await client.subscribe(to: channel) { messages in
                        // Earlier messages are lost.
                        continuation.yield(.unknown)
                        for try await message in messages {
                            if let change = Self.change(String(message.message), for: machine) {
                                continuation.yield(change)
                            }
                        }
                    }
                    try? await Task.sleep(for: .milliseconds(Int.random(in: 50...500)))
                }
                continuation.finish()
            }
            continuation.onTermination = { _ in listener.cancel() }
        }
    }

    private var channel: String { "{\(self.prefix)}:changes" }

    private func message(_ kind: String, _ scope: MuxShared.Scope) -> String {
        let words = [self.machine, kind] + Self.words(scope)
        return (try? JSONEncoder().encode(words)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    private static func words(_ scope: MuxShared.Scope) -> [String] {
        switch scope {
        case .entry(let key): ["entry", key.domain] + (key.key.map { [$0] } ?? [])
        case .tag(let tag): ["tag", tag]
        case .domain(let domain): ["domain", domain]
        default: ["everything"]
        }
    }

    /// `nil` for an invalidation by this machine.
    private static func change(_ message: String, for machine: String) -> MuxShared.Change? {
        guard let words = try? JSONDecoder().decode([String].self, from: Data(message.utf8)), words.count > 2 else {
            return .unknown
        }
        let scope: MuxShared.Scope =
            switch (words[2], words.count) {
            case ("entry", 4): .entry(MuxStoreKey(domain: words[3]))
            case ("entry", 5): .entry(MuxStoreKey(domain: words[3], key: words[4]))
            case ("tag", 4): .tag(words[3])
            case ("domain", 4): .domain(words[3])
            default: .everything
            }
        switch (words[1], scope) {
        case ("stored", .entry(let key)): return .stored(key)
        case ("released", .entry(let key)): return .released(key)
        default: return words[0] == machine ? nil : .invalidated(scope)
        }
    }

    // MARK: - Scripts

    private struct Unexpected: Error {}

    /// The common functions of the scripts.
    ///
    /// `KEYS` are the entry, the claim (a nonce of 36 characters, a space, and the epochs), and the epochs of
    /// the scopes of the name. A claim makes each missing epoch, with a unique value.
    private static let common = """
        -- Changes nothing. Engines check their limit of memory only before the first write of a script.
        local function refuseIfFull() redis.call('SETRANGE', KEYS[3], 0, '') end
        local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end
        local function text(number) return string.format('%.0f', number) end
        local function epochs(new)
            local all = {}
            for i = 3, #KEYS do
                local epoch = redis.call('GET', KEYS[i])
                if not epoch and new then epoch = new .. ':' .. i redis.call('SET', KEYS[i], epoch) end
                if new then redis.call('EXPIRE', KEYS[i], 691200) end
                all[#all + 1] = epoch or '?'
            end
            return table.concat(all, ' ')
        end
        local function found(new)
            local present = epochs(new)
            local f = redis.call('HMGET', KEYS[1], 'epochs', 'fetched', 'ttl', 'digest', 'facts', 'payload')
            if f[1] == present and tonumber(f[2]) and tonumber(f[3]) and f[4] and f[5] and f[6] then return f end
            return nil
        end
        local function age(f) return math.max(now() - f[2], 0) end
        local function told(f, known)
            if not f then return false end
            return {text(age(f)), f[5], f[4] ~= known and f[6]}
        end
        local function stands(nonce)
            local claim = redis.call('GET', KEYS[2])
            return claim and string.sub(claim, 1, 36) == nonce
        end

        """

    private func run(_ script: String, _ name: MuxShared.Name, _ arguments: [String] = []) async throws -> [RESPToken] {
        let words = Self.words(.entry(name.key))
        let keys = [self.key("v", words), self.key("c", words)] + name.scopes.map { self.key("e", Self.words($0)) }
        let reply = try await self.client.eval(script: Self.common + script, keys: keys, args: arguments)
        guard case .array(let parts) = reply.value else { throw Unexpected() }
        return Array(parts)
    }

    private func key(_ kind: String, _ words: [String]) -> ValkeyKey {
        let name = words.map { "\($0.utf8.count):\($0)" }.joined()
        return ValkeyKey("{\(self.prefix)}:\(kind):\(name)")
    }

    // MARK: - Values

    /// The facts about a value besides its bytes and its age.
    private struct Facts: Codable {
        var timeToLive: Int64
        var digest: String
        var schemaVersion: Int
        var validator: String?
        var staleWhileRevalidate: Int64?
        var staleIfError: Int64?

        init(_ entry: MuxShared.Entry) {
            self.timeToLive = ValkeyClientStore.microseconds(entry.timeToLive)
            self.digest = entry.digest
            self.schemaVersion = entry.schemaVersion
            self.validator = entry.validator
            self.staleWhileRevalidate = entry.staleWhileRevalidate.map { ValkeyClientStore.microseconds($0) }
            self.staleIfError = entry.staleIfError.map { ValkeyClientStore.microseconds($0) }
        }
    }

    /// The entry in the reply of a script; `nil` for a malformed reply.
    private static func entry(_ token: RESPToken) -> MuxShared.Entry? {
        guard case .array(let parts) = token.value else { return nil }
        let tokens = Array(parts)
        guard tokens.count >= 2, let age = self.number(tokens[0]), let text = self.text(tokens[1]),
            let facts = try? JSONDecoder().decode(Facts.self, from: Data(text.utf8))
        else { return nil }
        var payload: Data?
        if tokens.count > 2, let encoded = self.text(tokens[2]) {
            payload = Data(base64Encoded: String(encoded.dropFirst()))
            guard payload != nil else { return nil }
        }
        return MuxShared.Entry(
            payload: payload,
            digest: facts.digest,
            timeToLive: .microseconds(facts.timeToLive),
            age: .microseconds(age),
            schemaVersion: facts.schemaVersion,
            validator: facts.validator,
            staleWhileRevalidate: facts.staleWhileRevalidate.map { .microseconds($0) },
            staleIfError: facts.staleIfError.map { .microseconds($0) }
        )
    }

    private static func microseconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = min(max(duration, .zero), .seconds(3_650 * 86_400)).components
        return seconds * 1_000_000 + attoseconds / 1_000_000_000_000
    }

    private static func text(_ token: RESPToken) -> String? {
        switch token.value {
        case .bulkString(let bytes), .simpleString(let bytes): String(buffer: bytes)
        default: nil
        }
    }

    private static func number(_ token: RESPToken) -> Int64? {
        if case .number(let number) = token.value { return number }
        return self.text(token).flatMap { Int64($0) }
    }
}
