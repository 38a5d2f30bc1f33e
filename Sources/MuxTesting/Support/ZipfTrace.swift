/// Keys as they are asked for: the first is asked for most.
package struct ZipfTrace: Sendable {
    private var sums: [Double] = []

    package init(keys: Int) {
        var sum = 0.0
        self.sums = (1...keys).map { rank in
            sum += 1 / Double(rank)
            return sum
        }
    }

    /// The next key.
    package func key(_ random: inout SplitMix64) -> Int {
        let point = Double.random(in: 0..<(self.sums.last ?? 1), using: &random)
        var low = 0
        var high = self.sums.count
        while low < high {
            let middle = (low + high) / 2
            if self.sums[middle] <= point { low = middle + 1 } else { high = middle }
        }
        return low
    }
}
