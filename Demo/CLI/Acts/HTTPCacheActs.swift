import MuxKit
import MuxNetwork
import MuxTesting

/// Stored responses in a private cache: RFC 9111 and RFC 5861.
enum HTTPCacheActs {
    static var all: [Play] {
        [
            Play("Whole answers, cached", self.wholeAnswers)
        ]
    }

    private static func wholeAnswers(_ act: inout Act, _ stage: Stage) async throws {
        let cache: CachingTransport = .caching(repository: MuxRepository(store: MemoryStore()))
        let reader = PageReader(client: HTTPClient(transport: cache), server: stage.backend.server)
        try await self.revalidation(reader, &act)
        try await self.variants(reader, &act)
        try await self.errors(reader, stage.backend, &act)
        act.elsewhere = cache.statistics
    }

    private static func revalidation(_ reader: PageReader, _ act: inout Act) async throws {
        let first = try await reader.read("weather")
        act.expect("a response that arrives stale is stored: \(first)", first.cache?.isStored == true)
        let second = try await reader.read("weather")
        let isValidated = second.cache?.forwardStatus == 304 && second.text == "Sunny" && second.requests == 2
        act.expect("the stale response is revalidated; after a 304 the stored body is used: \(second)", isValidated)
        let third = try await reader.read("weather")
        let isFresh = third.cache?.isHit == true && third.text == "Sunny" && third.requests == 2
        act.expect("the response is fresh again and is used without a request: \(third)", isFresh)
    }

    private static func variants(_ reader: PageReader, _ act: inout Act) async throws {
        for (language, text, requests) in [("de", "Guten Tag", 1), ("fr", "Bonjour", 2)] {
            let answer = try await reader.read("greeting", headers: [.acceptLanguage: language])
            let isFetched = answer.cache?.isHit == false && answer.requests == requests
            act.expect("Vary: \(language) has a separate variant: \(answer)", isFetched && answer.text == text)
        }
        for (language, text) in [("de", "Guten Tag"), ("fr", "Bonjour")] {
            let answer = try await reader.read("greeting", headers: [.acceptLanguage: language])
            let isCached = answer.cache?.isHit == true && answer.requests == 2
            act.expect("Vary: \(language) again, from the cache: \(answer)", isCached && answer.text == text)
        }
    }

    private static func errors(_ reader: PageReader, _ backend: LoopbackBackend, _ act: inout Act) async throws {
        for name in ["news", "prices"] { _ = try await reader.read(name) }
        func isStale(_ news: PageReader.Reading) -> Bool {
            news.cache?.forward == .stale && news.text == "All is well" && news.requests == 2
        }
        let news = try await reader.read("news")
        act.expect("after a 503, stale-if-error permits the stale response: \(news)", isStale(news))
        let prices = try await reader.read("prices")
        let isRefused = prices.response.status == .serviceUnavailable && prices.requests == 2
        act.expect("without stale-if-error, the caller gets the 503: \(prices)", isRefused)
        await backend.goOffline()
        let offline = try await reader.read("news")
        try backend.goOnline()
        act.expect("the server is stopped: the stale response is used again: \(offline)", isStale(offline))
    }
}
