/// The parsed arguments.
enum Command: Equatable {
    /// Plays the acts up to the one with that argument; `nil` for all.
    case play(act: String?, asJSON: Bool)
    case serve(port: UInt16?)
    /// Shows several machines that share a store.
    case fleet(port: UInt16?)
    case help
    /// A child process of the demo; see ``Relaunch`` and ``WorkerProcess``.
    case child([String])

    /// Unknown arguments.
    struct Misunderstanding: Error, Equatable {
        var text: String
    }

    static let manual = """
        swift run demo                    plays the acts, and exits with 1 if one of them fails
        swift run demo play ACT           plays one of them, after those that it goes on from; ACT is one of the names below
        swift run demo --json             plays them, and prints the whole report as JSON
        swift run demo serve [--port N]   shows the running library in a browser, at 127.0.0.1 only; N is 1 to 65535,
                                          and a free port is chosen without it
        swift run demo fleet [--port N]   shows four machines of a service there, which share one store in memory
        swift run demo help               prints this, as does --help behind any of these

        The acts:

        \(Play.all.map { "  \($0.argument)" }.joined(separator: "\n"))

        They are played by a backend on loopback (sign-in, rotating refresh tokens, short-lived access tokens, places of the world)
        and an app that uses MuxKit as its README shows. For each act: what the app asked for, who served it, what the
        server saw, and whether that is what the library promises. On a terminal a bar shows how far it is.

        Exit codes: 0 all went as promised, 1 something did not, 2 the arguments were not understood.

        Places: GeoNames (https://www.geonames.org), CC BY 4.0.
        """

    init(_ arguments: [String]) throws(Misunderstanding) {
        if [Relaunch.argument, WorkerProcess.argument].contains(arguments.first) {
            self = .child(arguments)
            return
        }
        if arguments.first == "help" || !Set(arguments).isDisjoint(with: ["--help", "-h"]) {
            self = .help
            return
        }
        var rest = arguments[...]
        let asJSON = rest.contains("--json")
        rest.removeAll { $0 == "--json" }
        switch rest.popFirst() {
        case nil: self = .play(act: nil, asJSON: asJSON)
        case "play":
            guard let name = rest.popFirst() else { throw Misunderstanding(text: "'play' needs the name of an act") }
            guard Play.all.contains(where: { $0.argument == name }) else {
                throw Misunderstanding(text: "there is no act '\(name)'")
            }
            self = .play(act: name, asJSON: asJSON)
        case let page? where ["serve", "fleet"].contains(page):
            if asJSON { throw Misunderstanding(text: "there is no '--json' behind '\(page)'") }
            let port = try Self.port(&rest)
            self = page == "serve" ? .serve(port: port) : .fleet(port: port)
        case let other?: throw Misunderstanding(text: "there is no '\(other)'")
        }
        if let other = rest.first { throw Misunderstanding(text: "there is no '\(other)' here") }
    }

    private static func port(_ arguments: inout ArraySlice<String>) throws(Misunderstanding) -> UInt16? {
        guard arguments.first == "--port" else { return nil }
        arguments.removeFirst()
        guard let text = arguments.popFirst() else { throw Misunderstanding(text: "'--port' needs a number") }
        guard let port = UInt16(text), port > 0 else { throw Misunderstanding(text: "'\(text)' is no port") }
        return port
    }
}
