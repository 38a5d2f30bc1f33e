import Foundation

/// What is kept beside a growing file: what its bytes belong to.
///
/// How many bytes there are is said by the file itself, so the two cannot disagree.
struct MediaSidecar: Sendable, Equatable, Codable {
    /// The version of the format.
    private var mux = 1
    /// The strong validator of the representation.
    var validator: String
    /// How long the whole is, if the server has said.
    var total: Int64?

    init(validator: String, total: Int64?) {
        self.validator = validator
        self.total = total
    }

    /// Reads what was written; `nil` if it is damaged, of a later version, or of no use.
    init?(_ data: Data) {
        guard let sidecar = try? JSONDecoder().decode(MediaSidecar.self, from: data), sidecar.mux == 1,
            HTTPValidator.isStrongTag(sidecar.validator)
        else { return nil }
        self = sidecar
    }

    var encoded: Data {
        get throws { try JSONEncoder().encode(self) }
    }
}
