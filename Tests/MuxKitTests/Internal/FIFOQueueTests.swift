import MuxKit
import MuxTestSupport
import MuxTesting
import Testing

@Suite(.standard)
struct FIFOQueueTests {
    @Test(arguments: 0..<UInt64(repetitions(20)))
    func `HS-05 elements of a queue leave in the order of arrival`(seed: UInt64) {
        var random = SplitMix64(state: seed)
        var queue = FIFOQueue<Int>()
        var expected: [Int] = []
        for number in 0..<3_000 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0..<5:
                queue.append(number)
                expected.append(number)
            case 5..<9:
                #expect(queue.popFirst() == (expected.isEmpty ? nil : expected.removeFirst()))
            default:
                let divisor = Int.random(in: 2...9, using: &random)
                queue.removeAll { $0.isMultiple(of: divisor) }
                expected.removeAll { $0.isMultiple(of: divisor) }
            }
            #expect(queue.isEmpty == expected.isEmpty)
        }
        while let first = queue.popFirst() { #expect(first == expected.removeFirst()) }
        #expect(expected.isEmpty && queue.placeCount < 64)
    }

    @Test func `HS-05 a queue that is never empty does not grow`() {
        var queue = FIFOQueue<Int>()
        for number in 0..<20 { queue.append(number) }
        for number in 20..<10_000 {
            queue.append(number)
            #expect(queue.popFirst() == number - 20)
            #expect(queue.placeCount < 64)
        }
    }

    @Test func `HS-05 a queue releases an element that has left`() {
        final class Element: Sendable {}
        var queue = FIFOQueue<Element>()
        weak var first: Element?
        do {
            let element = Element()
            first = element
            queue.append(element)
            queue.append(Element())
        }
        #expect(first != nil)
        _ = queue.popFirst()
        #expect(first == nil && !queue.isEmpty)
    }
}
