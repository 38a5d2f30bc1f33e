import Foundation
import MuxNetwork
import MuxTestSupport
import MuxTesting
import Testing

/// The freshness of a response in a private cache, case by case.
@Suite(.standard)
struct HTTPFreshnessTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT, the time at which all responses of the table arrive.
    private static let now = Date(timeIntervalSince1970: 784_111_777)

    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var headers: HTTPHeaders
        var expected: HTTPFreshness
        var method = HTTPMethod.get
        var status = HTTPStatus.ok
        var delay = Duration.zero

        init(
            _ name: String,
            _ headers: HTTPHeaders,
            _ timeToLive: Int64?,
            _ staleWhileRevalidate: Int64? = nil,
            _ staleIfError: Int64? = nil,
            isKept: Bool = true,
            method: HTTPMethod = .get,
            status: HTTPStatus = .ok,
            delay: Duration = .zero,
            validator: HTTPValidator? = nil
        ) {
            self.testDescription = name
            self.headers = headers
            self.method = method
            self.status = status
            self.delay = delay
            self.expected = HTTPFreshness()
            self.expected.isKept = isKept
            self.expected.timeToLive = timeToLive.map { .seconds($0) }
            self.expected.staleWhileRevalidate = staleWhileRevalidate.map { .seconds($0) }
            self.expected.staleIfError = staleIfError.map { .seconds($0) }
            self.expected.validator = validator
        }

        static func notKept(
            _ name: String,
            _ headers: HTTPHeaders,
            method: HTTPMethod = .get,
            status: HTTPStatus = .ok
        ) -> Case { Case(name, headers, nil, isKept: false, method: method, status: status) }
    }

    private static let present = "Sun, 06 Nov 1994 08:49:37 GMT"
    private static let aMinuteAgo = "Sun, 06 Nov 1994 08:48:37 GMT"
    private static let inAMinute = "Sun, 06 Nov 1994 08:50:37 GMT"
    private static let tenDaysAgo = "Thu, 27 Oct 1994 08:49:37 GMT"
    private static let tenMinutesAgo = "Sun, 06 Nov 1994 08:39:37 GMT"

    /// The limit of heuristic lifetimes in this table is one hour.
    static let cases: [Case] = [
        // No freshness information
        Case("RFC 9111 4.2.2: where nobody says anything, the policy decides", [:], nil),
        Case("RFC 9111 5.2: an empty field says nothing", [.cacheControl: ""], nil),
        Case("RFC 9111 5.2: commas alone say nothing", [.cacheControl: " , ,, "], nil),
        Case("RFC 9111 5.2.3: unknown directives say nothing", [.cacheControl: "x-y=1, community=\"UCI\""], nil),

        // max-age
        Case("RFC 9111 5.2.2.1: max-age", [.cacheControl: "max-age=60"], 60),
        Case("RFC 9111 5.2.2.1: max-age of zero", [.cacheControl: "max-age=0"], 0),
        Case("RFC 9111 5.2: names of directives in any case", [.cacheControl: "Max-AGE=60"], 60),
        Case("RFC 9111 5.2: blanks around directives", [.cacheControl: "  public ,\tmax-age=60  "], 60),
        Case("RFC 9111 5.2: no blanks around directives", [.cacheControl: "public,max-age=60,immutable"], 60),
        Case("RFC 9111 5.2: a quoted argument is one, too", [.cacheControl: "max-age=\"60\""], 60),
        Case("RFC 9110 5.6.4: an escape in a quoted argument", [.cacheControl: "max-age=\"6\\0\""], 60),
        Case(
            "RFC 9110 5.6.4: a comma in quotation marks ends nothing",
            [.cacheControl: "x=\"a, max-age=5, b\", max-age=60"],
            60
        ),
        Case(
            "RFC 9110 5.6.4: an escaped quotation mark ends nothing",
            [.cacheControl: "x=\"\\\", max-age=5\", max-age=60"],
            60
        ),
        Case("RFC 9110 5.6.4: a quotation that is never closed", [.cacheControl: "max-age=60, x=\"no-store"], 60),
        Case("RFC 9110 5.3: two fields count as one", ["Cache-Control": "public", "cache-control": "max-age=60"], 60),
        Case("RFC 9111 4.2.1: of two max-ages the first counts", [.cacheControl: "max-age=60, max-age=5"], 60),
        Case("RFC 9111 4.2.1: a max-age without a number is stale", [.cacheControl: "max-age"], 0),
        Case("RFC 9111 4.2.1: an empty max-age is stale", [.cacheControl: "max-age="], 0),
        Case("RFC 9111 4.2.1: a negative max-age is stale", [.cacheControl: "max-age=-1"], 0),
        Case("RFC 9111 4.2.1: a max-age with a fraction is stale", [.cacheControl: "max-age=1.5"], 0),
        Case("RFC 9111 4.2.1: a max-age in words is stale", [.cacheControl: "max-age=soon"], 0),
        Case("RFC 9111 4.2.1: a max-age with a plus is stale", [.cacheControl: "max-age=+60"], 0),
        Case("RFC 9111 4.2.1: a max-age with other digits is stale", [.cacheControl: "max-age=٦٠"], 0),
        Case("RFC 9111 1.2.2: a max-age beyond 31 bits", [.cacheControl: "max-age=4294967296"], 2_147_483_648),
        Case(
            "RFC 9111 1.2.2: a max-age beyond 64 bits",
            [.cacheControl: "max-age=99999999999999999999"],
            2_147_483_648
        ),
        Case("RFC 9111 5.2.2.10: s-maxage is not for us", [.cacheControl: "s-maxage=60"], nil),
        Case("RFC 9111 5.2.2.10: s-maxage does not replace max-age", [.cacheControl: "s-maxage=5, max-age=60"], 60),

        // Expires
        Case("RFC 9111 5.3: Expires", [.expires: inAMinute, .date: present], 60),
        Case("RFC 9111 5.3: Expires counts from Date", [.expires: present, .date: aMinuteAgo], 0),
        Case("RFC 9110 6.6.1: without a Date it counts from now", [.expires: inAMinute], 60),
        Case("RFC 9111 5.3: Expires in the past", [.expires: aMinuteAgo, .date: present], 0),
        Case("RFC 9111 5.3: an Expires of 0 is in the past", [.expires: "0", .date: present], 0),
        Case("RFC 9111 5.3: an Expires of -1 is in the past", [.expires: "-1"], 0),
        Case("RFC 9111 5.3: an empty Expires is in the past", [.expires: ""], 0),
        Case("RFC 9111 4.2: an Expires in a zone but GMT", [.expires: "Sun, 06 Nov 1994 09:50:37 CET"], 0),
        Case("RFC 9111 4.2: an Expires in small letters", [.expires: "sun, 06 nov 1994 08:50:37 gmt"], 60),
        Case("RFC 9110 5.6.7: an Expires as of RFC 850", [.expires: "Sunday, 06-Nov-94 08:50:37 GMT"], 60),
        Case("RFC 9110 5.6.7: an Expires as of C", [.expires: "Sun Nov  6 08:50:37 1994"], 60),
        Case("RFC 9111 4.2.1: max-age goes before Expires", [.expires: inAMinute, .cacheControl: "max-age=5"], 5),
        Case(
            "RFC 9111 5.2.2.10: s-maxage does not replace Expires",
            [.expires: inAMinute, .cacheControl: "s-maxage=5"],
            60
        ),
        Case("RFC 9111 4.2.1: two Expires are stale", ["Expires": inAMinute, "expires": inAMinute], 0),

        // Age
        Case("RFC 9111 4.2.3: Age is time that has passed", [.cacheControl: "max-age=60", .age: "20"], 40),
        Case("RFC 9111 4.2.3: an Age beyond the lifetime", [.cacheControl: "max-age=60", .age: "90"], 0),
        Case("RFC 9111 4.2.3: Age counts for Expires, too", [.expires: inAMinute, .date: present, .age: "20"], 40),
        Case("RFC 9111 5.1: of two Ages the first counts", [.cacheControl: "max-age=60", .age: "20, 50"], 40),
        Case("RFC 9111 5.1: an Age that is no number is ignored", [.cacheControl: "max-age=60", .age: "old"], 60),
        Case("RFC 9111 5.1: a negative Age is ignored", [.cacheControl: "max-age=60", .age: "-5"], 60),
        Case("RFC 9111 1.2.2: an endless Age", [.cacheControl: "max-age=60", .age: "99999999999999999999"], 0),
        Case("RFC 9111 4.2.3: a Date in the past is an age", [.cacheControl: "max-age=100", .date: aMinuteAgo], 40),
        Case("RFC 9111 4.2.3: a Date in the future is none", [.cacheControl: "max-age=60", .date: inAMinute], 60),
        Case("RFC 9111 4.2.3: a Date that is none", [.cacheControl: "max-age=60", .date: "yesterday"], 60),
        Case(
            "RFC 9111 4.2.3: the greater of Age and Date counts",
            [.cacheControl: "max-age=100", .date: aMinuteAgo, .age: "20"],
            40
        ),
        Case(
            "RFC 9111 4.2.3: the time under way is added to Age",
            [.cacheControl: "max-age=60", .age: "20"],
            30,
            delay: .seconds(10)
        ),
        Case(
            "RFC 9111 4.2.3: the time under way alone",
            [.cacheControl: "max-age=60", .date: present],
            50,
            delay: .seconds(10)
        ),

        // Heuristic freshness
        Case(
            "RFC 9111 4.2.2: a tenth of the time since the last change",
            [.lastModified: tenMinutesAgo, .date: present],
            60,
            validator: .lastModified(tenMinutesAgo)
        ),
        Case(
            "RFC 9111 4.2.2: but no longer than the limit",
            [.lastModified: tenDaysAgo, .date: present],
            3600,
            validator: .lastModified(tenDaysAgo)
        ),
        Case(
            "RFC 9111 4.2.2: a change in the future",
            [.lastModified: inAMinute, .date: present],
            0,
            validator: .lastModified(inAMinute)
        ),
        Case("RFC 9111 4.2.2: a last change that is no time", [.lastModified: "long ago", .date: present], nil),
        Case(
            "RFC 9111 4.2.2: no guess where there is a max-age",
            [.lastModified: tenDaysAgo, .cacheControl: "max-age=5"],
            5,
            validator: .lastModified(tenDaysAgo)
        ),
        Case(
            "RFC 9111 4.2.2: no guess where there is an Expires",
            [.lastModified: tenDaysAgo, .expires: "0"],
            0,
            validator: .lastModified(tenDaysAgo)
        ),
        Case(
            "RFC 9111 4.2.2: Age shortens a guess",
            [.lastModified: tenMinutesAgo, .date: present, .age: "45"],
            15,
            validator: .lastModified(tenMinutesAgo)
        ),

        // Prohibitions
        .notKept("RFC 9111 5.2.2.5: no-store", [.cacheControl: "no-store"]),
        .notKept("RFC 9111 5.2.2.5: no-store beats max-age", [.cacheControl: "max-age=60, no-store"]),
        .notKept("RFC 9111 5.2: NO-STORE", [.cacheControl: "NO-STORE"]),
        .notKept("RFC 9111 5.2.2.5: no-store with an argument", [.cacheControl: "no-store=1"]),
        Case("RFC 9111 5.2.2.4: no-cache", [.cacheControl: "no-cache"], 0, 0, 0),
        Case("RFC 9111 4.2.1: no-cache beats max-age", [.cacheControl: "max-age=60, no-cache"], 0, 0, 0),
        Case(
            "RFC 9111 5.2.2.4: no-cache with fields",
            [.cacheControl: "no-cache=\"Set-Cookie, X\", max-age=60"],
            0,
            0,
            0
        ),
        Case(
            "RFC 9111 4.3.1: no-cache keeps the tag",
            [.cacheControl: "no-cache", .eTag: "\"a\""],
            0,
            0,
            0,
            validator: .entityTag("\"a\"")
        ),
        Case("RFC 9111 5.2.2.2: must-revalidate", [.cacheControl: "max-age=60, must-revalidate"], 60, 0, 0),
        Case("RFC 9111 5.2.2.2: must-revalidate alone", [.cacheControl: "must-revalidate"], nil, 0, 0),
        Case("RFC 9111 5.2.2.8: proxy-revalidate is not for us", [.cacheControl: "max-age=60, proxy-revalidate"], 60),
        Case("RFC 9111 5.2.2.7: private is for us", [.cacheControl: "private, max-age=60"], 60),
        Case("RFC 9111 5.2.2.7: private with fields", [.cacheControl: "private=\"X\", max-age=60"], 60),
        Case("RFC 9111 5.2.2.9: public", [.cacheControl: "public"], nil),
        Case(
            "RFC 9111 5.2.2.3: must-understand beats no-store",
            [.cacheControl: "must-understand, no-store, max-age=60"],
            60
        ),
        .notKept(
            "RFC 9111 5.2.2.3: must-understand and a status that we do not know",
            [.cacheControl: "must-understand, max-age=60"],
            status: 299
        ),
        Case("RFC 9111 5.4: Pragma of an answer says nothing", [.pragma: "no-cache", .cacheControl: "max-age=60"], 60),
        Case("RFC 8246 2: immutable changes nothing while it is fresh", [.cacheControl: "max-age=60, immutable"], 60),

        // Permitted staleness
        Case("RFC 5861 3: stale-while-revalidate", [.cacheControl: "max-age=60, stale-while-revalidate=30"], 60, 30),
        Case("RFC 5861 4: stale-if-error", [.cacheControl: "max-age=60, stale-if-error=1200"], 60, nil, 1200),
        Case(
            "RFC 5861: both, in quotation marks",
            [.cacheControl: "max-age=60, stale-while-revalidate=\"5\", Stale-If-Error=\"7\""],
            60,
            5,
            7
        ),
        Case(
            "RFC 5861 3: without a number it grants nothing",
            [.cacheControl: "stale-while-revalidate, max-age=1"],
            1,
            0
        ),
        Case(
            "RFC 5861 4: a number that is none grants nothing",
            [.cacheControl: "stale-if-error=ever, max-age=1"],
            1,
            nil,
            0
        ),
        Case(
            "RFC 9111 5.2.2.2: must-revalidate beats both",
            [.cacheControl: "max-age=60, stale-while-revalidate=30, stale-if-error=60, must-revalidate"],
            60,
            0,
            0
        ),
        Case(
            "RFC 9111 5.2.2.4: no-cache beats both",
            [.cacheControl: "no-cache, stale-while-revalidate=30, stale-if-error=60"],
            0,
            0,
            0
        ),
        Case(
            "RFC 5861 3: what arrives stale has used some of it up",
            [.cacheControl: "max-age=60, stale-while-revalidate=30, stale-if-error=15", .age: "80"],
            0,
            10,
            0
        ),

        // Vary
        Case("RFC 9111 4.1: Vary of a star matches nothing", [.vary: "*", .cacheControl: "max-age=60"], 0, 0, 0),
        Case("RFC 9111 4.1: a star among others", [.vary: "Accept, *", .cacheControl: "max-age=60"], 0, 0, 0),
        Case(
            "RFC 9111 4.1: other fields are part of the key",
            [.vary: "Accept-Language", .cacheControl: "max-age=60"],
            60
        ),

        // Methods and statuses
        Case("RFC 9110 9.3.2: HEAD", [.cacheControl: "max-age=60"], 60, method: .head),
        .notKept("RFC 9110 9.3.3: an answer to POST", [.cacheControl: "max-age=60"], method: .post),
        .notKept("RFC 9110 9.3.4: an answer to PUT", [.cacheControl: "max-age=60"], method: .put),
        .notKept("RFC 9111 3: a method that is not known", [.cacheControl: "max-age=60"], method: "REPORT"),
        Case("RFC 9110 15.3.4: a status that is kept by itself", [:], nil, status: 203),
        .notKept("RFC 9110 15.3.2: a status that is not kept by itself", [:], status: 201),
        Case("RFC 9111 3: but is where the server says so", [.cacheControl: "max-age=60"], 60, status: 201),
        Case("RFC 9111 3: or says that it may be", [.cacheControl: "private"], nil, status: 202),
        .notKept("RFC 9110 15.3.7: a part", [.cacheControl: "max-age=60"], status: 206),

        // Validators
        Case("RFC 9110 8.8.3: a strong tag", [.eTag: "\"a,b\""], nil, validator: .entityTag("\"a,b\"")),
        Case("RFC 9110 8.8.3: a weak tag", [.eTag: "W/\"a\""], nil, validator: .entityTag("W/\"a\"")),
        Case("RFC 9110 8.8.3: an empty tag", [.eTag: "\"\""], nil, validator: .entityTag("\"\"")),
        Case("RFC 9110 8.8.3: a tag without quotation marks is kept", [.eTag: "a"], nil, validator: .entityTag("a")),
        Case("RFC 9110 8.8.3: a tag with a blank is none", [.eTag: "\"a b\""], nil),
        Case("RFC 9110 8.8.3: a weak tag in small letters is none", [.eTag: "w/\"a\""], nil),
        Case(
            "RFC 9110 13.1.3: the tag goes before the time",
            [.eTag: "\"a\"", .lastModified: tenMinutesAgo, .date: present],
            60,
            validator: .entityTag("\"a\"")
        ),
        Case(
            "RFC 9110 8.8.2: the time where the tag is none",
            [.eTag: "\"a b\"", .lastModified: tenMinutesAgo, .date: present],
            60,
            validator: .lastModified(tenMinutesAgo)
        ),
    ]

    @Test(arguments: Self.cases) func `N01 the freshness of a response follows the RFCs`(_ testCase: Case) {
        let answer = HTTPFreshness.Response(
            method: testCase.method,
            status: testCase.status,
            headers: testCase.headers,
            receivedAt: Self.now,
            delay: testCase.delay
        )

        var freshness = HTTPFreshness.of(answer, heuristicLimit: .seconds(3600))
        // The other fields follow from these three, so the table contains only the other fields.
        (freshness.age, freshness.overdue, freshness.mustRevalidate) = (.zero, .zero, false)
        #expect(freshness == testCase.expected)
    }

    @Test func `N01 the table has at least sixty cases, and each case names its section`() {
        #expect(Self.cases.count >= 60)
        #expect(Self.cases.allSatisfy { $0.testDescription.hasPrefix("RFC ") })
        #expect(Set(Self.cases.map(\.testDescription)).count == Self.cases.count)
    }

    @Test func `N01 arbitrary fields of a response give durations within the limits`() {
        let pieces = [
            "max-age", "=", "\"", "60", ",", " ", "\\", "no-cache", "stale-if-error", "stale-while-revalidate", "-1",
            "99999999999999999999", "must-revalidate", "é", "\u{0}", "no-store", "=\"a,",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "W/\"a\"", "*", "Sunday, 06-Nov-94 08:49:37 GMT", "0",
        ]
        let names: [HTTPHeaders.Name] = [.cacheControl, .age, .date, .expires, .lastModified, .eTag, .vary]
        for seed in 0..<3_000 as Range<UInt64> {
            var random = SplitMix64(state: seed)
            var headers = HTTPHeaders()
            for name in names where Bool.random(using: &random) {
                let count = Int.random(in: 0...8, using: &random)
                headers[name] = (0..<count).map { _ in pieces.randomElement(using: &random) ?? "" }.joined()
            }
            let answer = HTTPFreshness.Response(
                headers: headers,
                receivedAt: Date(timeIntervalSince1970: Double.random(in: -1e12...1e12, using: &random)),
                delay: .seconds(Int64.random(in: -5...(1 << 40), using: &random))
            )

            let freshness = HTTPFreshness.of(answer, heuristicLimit: .seconds(3600))

            let longest = Duration.seconds(HTTPDeltaSeconds.greatest)
            for time in [
                freshness.age, freshness.overdue, freshness.timeToLive, freshness.staleIfError,
                freshness.staleWhileRevalidate,
            ] {
                #expect(time.map { $0 >= .zero && $0 <= longest } ?? true, "seed \(seed)")
            }
            if let validator = freshness.validator {
                #expect(HTTPValidator(validator.text) == validator, "seed \(seed): what is kept is read back")
                #expect(HTTPGrammar.isFieldValue(validator.text), "seed \(seed)")
            }
        }
    }
}
