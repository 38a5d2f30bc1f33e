import Foundation
import MuxNetwork
import MuxTestSupport
import Testing

@Suite(.standard)
struct DownloadStateMachineTests {
    typealias Machine = DownloadStateMachine

    private func machine(_ partial: Machine.Partial? = nil, limit: Int64 = 1000) -> Machine {
        var machine = Machine(limit: limit)
        if let partial { machine.beginAttempt(with: partial) }
        return machine
    }

    /// 40 of 100 bytes.
    private static let some = Machine.Partial(validator: "\"v\"", total: 100, offset: 40)

    private static func part(
        _ bounds: ClosedRange<Int64>?,
        of total: Int64?,
        length: Int64? = nil,
        validator: String? = nil,
        mayArriveDecoded: Bool = false,
        hasUnusableTag: Bool = false
    ) -> DownloadHead {
        var head = DownloadHead(
            status: 206,
            length: length,
            range: ContentRange(bounds: bounds, total: total),
            validator: validator,
            mayArriveDecoded: mayArriveDecoded
        )
        head.hasUnusableTag = hasUnusableTag
        return head
    }

    @Test(arguments: [
        (Machine.Partial(), Machine.Step.askForAll),
        (.init(validator: nil, total: 100, offset: 40), .askForAll),
        (.init(validator: "\"v\"", total: 100, offset: 0), .askForAll),
        (.init(validator: "\"v\"", total: 100, offset: 101), .askForAll),
        (.init(validator: "\"v\"", total: 2000, offset: 40), .askForAll),
        (some, .ask(from: 40, ifStill: "\"v\"")),
        (.init(validator: "\"v\"", total: nil, offset: 40), .ask(from: 40, ifStill: "\"v\"")),
        (.init(validator: "\"v\"", total: 100, offset: 100), .finish),
    ])
    func `AM-04 the partial file decides which bytes are requested`(partial: Machine.Partial, step: Machine.Step) {
        let machine = self.machine(partial)
        #expect(machine.nextStep == step)
        #expect(machine.partial == (step == .askForAll ? .init() : partial), "what is of no use does not count")
    }

    @Test(arguments: [
        // A matching part is appended.
        (part(40...99, of: 100), Machine.HeadAction.append),
        (part(40...99, of: 100, length: 60, validator: "\"v\""), .append),
        (part(40...99, of: nil), .append),
        (part(40...69, of: 100), .append),
        // After a mismatch the complete file is requested again.
        (part(39...99, of: 100), .askAgain),
        (part(41...99, of: 100), .askAgain),
        (part(0...99, of: 100), .askAgain),
        (part(40...99, of: 101), .askAgain),
        (part(40...100, of: nil), .askAgain),
        (part(40...99, of: 100, length: 59), .askAgain),
        (part(40...99, of: 100, validator: "\"w\""), .askAgain),
        (part(40...99, of: 100, mayArriveDecoded: true), .askAgain),
        (part(40...99, of: 100, hasUnusableTag: true), .askAgain),
        (part(nil, of: 100), .askAgain),
        (DownloadHead(status: 206), .askAgain),
        // The complete file instead of a part.
        (DownloadHead(status: 200, length: 90, validator: "\"w\""), .restart),
        (DownloadHead(status: 203), .restart),
        (DownloadHead(status: 200, length: 1001), .fail(.tooLarge(limit: 1000))),
        // The range is not satisfiable: the file has changed.
        (DownloadHead(status: 416, range: ContentRange(bounds: nil, total: 40)), .askAgain),
        (DownloadHead(status: 416), .askAgain),
        // Refusals.
        (DownloadHead(status: 204), .refuse(status: 204)), (DownloadHead(status: 401), .refuse(status: 401)),
        (DownloadHead(status: 404), .refuse(status: 404)), (DownloadHead(status: 500), .refuse(status: 500)),
        (DownloadHead(status: 304), .refuse(status: 304)), (DownloadHead(status: 412), .refuse(status: 412)),
    ])
    func `AM-04 a response to a request for the rest is appended only if it matches`(
        head: DownloadHead,
        action: Machine.HeadAction
    ) {
        var machine = self.machine(Self.some)
        #expect(machine.received(head) == action)
        if action == .askAgain {
            #expect(machine.nextStep == .askForAll)
            machine.beginAttempt(with: Self.some)
            #expect(machine.received(head) == .fail(.contradiction), "only once")
        }
    }

    @Test(arguments: [
        (DownloadHead(status: 200, length: 100, validator: "\"v\""), Machine.HeadAction.restart),
        (part(0...99, of: 100), .fail(.contradiction)),
        (DownloadHead(status: 416), .refuse(status: 416)),
    ])
    func `AM-04 a response to a request for the complete file must be the complete file`(
        head: DownloadHead,
        action: Machine.HeadAction
    ) {
        var machine = self.machine()
        #expect(machine.received(head) == action)
    }

    @Test func `AM-04 a file of unannounced length without a missing byte is complete`() {
        var machine = self.machine(.init(validator: "\"v\"", total: nil, offset: 40))

        #expect(machine.received(DownloadHead(status: 416, range: ContentRange(bounds: nil, total: 40))) == .finish)
        #expect(machine.partial.total == 40)
    }

    @Test(
        arguments: [
            (DownloadHead(status: 200, length: 100), 100, nil),
            (DownloadHead(status: 200, length: 100), 101, .contradiction),
            (DownloadHead(status: 200), 1000, nil), (DownloadHead(status: 200), 1001, .tooLarge(limit: 1000)),
            (DownloadHead(status: 404), 1, .contradiction),
        ] as [(DownloadHead, Int, MediaError?)]
    )
    func `AM-06 no more bytes are accepted than were announced`(
        head: DownloadHead,
        count: Int,
        rejection: MediaError?
    ) {
        var machine = self.machine()
        _ = machine.received(head)
        #expect(machine.rejection(ofNext: count) == rejection)
    }

    @Test func `AM-06 no more bytes of a part are accepted than were announced`() {
        var machine = self.machine(Self.some)
        #expect(machine.received(Self.part(40...69, of: 100)) == .append)
        #expect(machine.rejection(ofNext: 30) == nil)
        #expect(machine.rejection(ofNext: 31) == .contradiction)
    }

    @Test(arguments: [
        (DownloadHead(status: 200, length: 100), 100, true, Machine.EndAction.finish),
        (DownloadHead(status: 200, length: 100), 100, false, .finish),
        (DownloadHead(status: 200, length: 100), 99, true, .fail),
        (DownloadHead(status: 200, length: 100), 99, false, .fail),
        (DownloadHead(status: 200), 7, true, .finish), (DownloadHead(status: 200), 7, false, .fail),
        (DownloadHead(status: 404), 0, true, .fail), (DownloadHead(status: 200, length: 0), 0, true, .finish),
    ])
    func `AM-06 a file is complete when all bytes have arrived and not before`(
        head: DownloadHead,
        count: Int,
        inOrder: Bool,
        action: Machine.EndAction
    ) {
        var machine = self.machine()
        _ = machine.received(head)
        machine.appended(count: count)
        #expect(machine.ended(inOrder: inOrder) == action)
    }

    @Test func `AM-04 the missing bytes are requested if a server sends less than the rest`() {
        var machine = self.machine(Self.some)
        #expect(machine.received(Self.part(40...69, of: 100)) == .append)
        machine.appended(count: 30)

        #expect(machine.ended(inOrder: true) == .askForRest)
        #expect(machine.nextStep == .ask(from: 70, ifStill: "\"v\""))
    }

    @Test(arguments: [0, 59])
    func `AM-04 a range of a file of unknown length that ends too early is a failure`(count: Int) {
        var machine = self.machine(.init(validator: "\"v\"", total: nil, offset: 40))
        #expect(machine.received(Self.part(40...99, of: nil)) == .append)
        machine.appended(count: count)
        #expect(machine.ended(inOrder: true) == .fail)
        machine.appended(count: 60 - count)
        #expect(machine.ended(inOrder: true) == .fail, "the exchange has ended")
    }

    @Test func `AM-04 a new representation replaces the old representation`() {
        var machine = self.machine(Self.some)
        _ = machine.received(DownloadHead(status: 200, length: 90, validator: "\"w\""))

        #expect(machine.partial == .init(validator: "\"w\"", total: 90, offset: 0))
    }

    @Test func `PT-01 only bytes received since the last check of the disk count as gained`() {
        var machine = self.machine(Self.some)
        #expect(machine.received(Self.part(40...99, of: 100)) == .append)
        machine.appended(count: 30)
        #expect(machine.gained == 30)

        machine.beginAttempt(with: machine.partial)

        #expect(machine.gained == 0)
        #expect(machine.received(Self.part(70...99, of: 100)) == .append)
        machine.appended(count: 5)
        #expect(machine.gained == 5)
    }

    @Test(
        arguments: [
            ("bytes 0-99/100", ContentRange(bounds: 0...99, total: 100)),
            ("Bytes 5-5/*", ContentRange(bounds: 5...5, total: nil)),
            ("bytes */100", ContentRange(bounds: nil, total: 100)),
            ("bytes */*", nil), ("bytes 9-5/100", nil), ("bytes 0-100/100", nil), ("bytes -1-5/100", nil),
            ("bytes 0-5", nil), ("items 0-5/10", nil), ("bytes a-b/c", nil), ("", nil), ("bytes +1-5/10", nil),
            ("bytes 0-99999999999999999999/*", nil), ("bytes 1-2-3/9", nil), ("bytes 0-5/10/10", nil),
        ] as [(String, ContentRange?)]
    )
    func `AM-04 a Content-Range field is parsed or refused`(field: String, range: ContentRange?) {
        #expect(ContentRange(field) == range)
    }

    @Test(
        arguments: [
            (["ETag": "\"v\""], "\"v\""), (["ETag": "W/\"v\""], nil), (["ETag": "v"], nil), (["ETag": "\"\""], nil),
            ([:], nil), (["ETag": "\"v\"", "Content-Encoding": "gzip"], nil),
            (["ETag": "\"v\"", "Content-Encoding": "identity"], "\"v\""), (["ETag": " \"v\"\t"], "\"v\""),
            (["ETag": "\"v\", \"w\""], nil), (["ETag": "\"v w\""], nil), (["ETag": "\"v\u{7f}\""], nil),
            (["ETag": "\""], nil),
        ] as [([String: String], String?)]
    )
    func `AM-04 only a strong validator counts`(fields: [String: String], validator: String?) {
        let head = DownloadHead(HTTPReply(status: 200, headers: HTTPHeaders(fields)))
        #expect(head.validator == validator)
        #expect(
            head.hasUnusableTag == (fields["ETag"] != nil && fields["Content-Encoding"] != "gzip" && validator == nil)
        )
    }
}

extension DownloadHead {
    fileprivate init(
        status: Int,
        length: Int64? = nil,
        range: ContentRange? = nil,
        validator: String? = nil,
        mayArriveDecoded: Bool = false
    ) {
        self.init(HTTPReply(status: status))
        self.length = length
        self.range = range
        self.validator = validator
        self.mayArriveDecoded = mayArriveDecoded
    }
}
