import Foundation
import MuxKit

/// Encoding and decoding of a record, compared with the JSON coders alone.
enum EnvelopeGroup {
    static func rows(_ group: String, _ effort: Effort) async throws -> [Row] {
        try await self.rows(group, effort, kilobytes: 1, repetitions: 100, limit: 1.1)
            + self.rows(group, effort, kilobytes: 100, repetitions: 1, limit: 1.02)
    }

    private static func rows(
        _ group: String,
        _ effort: Effort,
        kilobytes: Int,
        repetitions: Int,
        limit: Double
    ) async throws -> [Row] {
        let article = Article(id: 1, kilobytes: kilobytes)
        let format = RecordCodec(store: 1)
        var lines: [UInt8] = []
        _ = try format.append(LoadGroup.entry(article), to: &lines)
        let record = lines
        let text = try JSONEncoder().encode(article)
        var encoding = Contest(rounds: effort.rounds(31))
        encoding.add(repeating: repetitions) { count in
            for _ in 0..<count { consume(try JSONEncoder().encode(article)) }
        }
        encoding.add(repeating: repetitions) { count in
            var bytes: [UInt8] = []
            for _ in 0..<count {
                bytes.removeAll(keepingCapacity: true)
                consume(try format.append(try LoadGroup.entry(article), to: &bytes))
            }
        }
        var decoding = Contest(rounds: effort.rounds(31))
        decoding.add(repeating: repetitions) { count in
            for _ in 0..<count { consume(try JSONDecoder().decode(Article.self, from: text)) }
        }
        decoding.add(repeating: repetitions) { count in
            for _ in 0..<count {
                guard let entry = format.entry(in: record) else { throw BenchmarkError.wrongResult("unreadable") }
                consume(try JSONDecoder().decode(Article.self, from: entry.payload))
            }
        }
        return [
            Row(
                group,
                "encode, \(kilobytes) KB",
                try await encoding.play(),
                figure: 1,
                limit: ("JSONEncoder", 0),
                goals: [.timesLimit(limit)]
            ),
            Row(
                group,
                "decode, \(kilobytes) KB",
                try await decoding.play(),
                figure: 1,
                limit: ("JSONDecoder", 0),
                goals: [.timesLimit(limit)]
            ),
        ]
    }
}
