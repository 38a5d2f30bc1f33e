package import Foundation

/// The content of a journal's small file: the number of the session, and the identity of the store.
///
/// `{"mux":1,"check":"…","epoch":3,"store":"0123456789abcdef"}`
package struct SessionFile: Sendable, Equatable {
    /// What a file turned out to hold.
    package enum Content: Sendable, Equatable {
        case present(SessionFile)
        /// A later version of the library wrote it.
        case newer
        case damaged
    }

    package var epoch: UInt64
    /// A random number that ties records to their store, so that a file moved into another folder is noticed.
    package var store: UInt64

    package init(epoch: UInt64, store: UInt64) {
        self.epoch = epoch
        self.store = store
    }

    package var encoded: Data {
        let rest = "\",\"epoch\":\(self.epoch),\"store\":\"\(Hex.text(of: self.store))\"}"
        return Data(ChecksummedLine.sealed(Array(rest.utf8)) + [0x0a])
    }

    package static func decode(_ content: Data) -> Content {
        guard content.last == 0x0a, let line = ChecksummedLine.open([UInt8](content.dropLast())[...]) else {
            return .damaged
        }
        guard line != .newer else { return .newer }
        struct Fields: Decodable {
            var epoch: UInt64
            var store: String
        }
        guard let fields = try? JSONDecoder().decode(Fields.self, from: content),
            let store = Hex.value(of: fields.store.utf8)
        else { return .damaged }
        return .present(SessionFile(epoch: fields.epoch, store: store))
    }
}
