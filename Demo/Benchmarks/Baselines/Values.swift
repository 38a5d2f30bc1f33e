import Foundation

/// A small value.
struct Profile: Codable, Sendable {
    var id: Int
    var name: String

    static let sample = Profile(id: 1, name: "Somebody with a long name")
}

/// A value of about a kilobyte of JSON for each section.
struct Article: Codable, Sendable {
    struct Section: Codable, Sendable {
        var title: String
        var words: [String]
        var numbers: [Double]
        var isOpen: Bool
    }

    var id: Int
    var sections: [Section]

    init(id: Int, kilobytes: Int = 1) {
        self.id = id
        self.sections = (0..<kilobytes).map { number in
            Section(
                title: "Section \(number) of \(id), of a title that is a sentence and not merely a word",
                words: (0..<75).map { "word \(id &* 7 &+ $0)" },
                numbers: (0..<16).map { Double(id &+ $0) / 8 },
                isOpen: number.isMultiple(of: 2)
            )
        }
    }
}
