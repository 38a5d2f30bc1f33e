/// The parsed arguments.
enum Command: Equatable {
    /// Plays the acts up to the named act; `nil` for all acts.
    case play(act: String?, asJSON: Bool)
    case serve(port: UInt16?)
    /// Shows several machines that share a store.
    case fleet(port: UInt16?)
    case help
    /// A child process of the demo; see ``Relaunch``, ``WorkerProcess`` and ``WriterProcess``.
    case child([String])

    /// Unknown arguments.
    struct Misunderstanding: Error, Equatable {
        var text: String
    }

    static let manual = """
        swift run demo                    plays the acts, and exits with 1 if an act fails
        swift run demo play ACT           plays an act, after the acts before it; ACT is a name below
        swift run demo --json             plays the acts, and prints the entire report as JSON
        swift run demo serve [--port N]   shows the running library in a browser, at 127.0.0.1 only; N is 1 to 65535;
                                          without --port, a free port is chosen
        swift run demo fleet [--port N]   shows four machines of a service in a browser, with a shared store in memory
        swift run demo help               prints this help, as does --help after any command

        The acts:

        \(Play.all.map { "  \($0.argument)" }.joined(separator: "\n"))

        The acts use a backend on loopback (sign-in, rotating refresh tokens, short-lived access tokens, places of the world)
        and an app that uses MuxKit as in the README. For each act, the report counts the app's requests by source and the
        server's token requests, and says whether each promise of the library held. On a terminal, a bar shows the progress.

        Exit codes: 0 success, 1 a failure, 2 invalid arguments.

        Places: GeoNames (https://www.geonames.org), CC BY 4.0.
        """

    init(_ arguments: [String]) throws(Misunderstanding) {
        if [Relaunch.argument, WorkerProcess.argument, WriterProcess.argument].contains(arguments.first) {
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
                throw Misunderstanding(text: "unknown act '\(name)'")
            }
            self = .play(act: name, asJSON: asJSON)
        case let page? where ["serve", "fleet"].contains(page):
            if asJSON { throw Misunderstanding(text: "'\(page)' does not take '--json'") }
            let port = try Self.port(&rest)
            self = page == "serve" ? .serve(port: port) : .fleet(port: port)
        case let other?: throw Misunderstanding(text: "unknown command '\(other)'")
        }
        if let other = rest.first { throw Misunderstanding(text: "unexpected argument '\(other)'") }
    }

    private static func port(_ arguments: inout ArraySlice<String>) throws(Misunderstanding) -> UInt16? {
        guard arguments.first == "--port" else { return nil }
        arguments.removeFirst()
        guard let text = arguments.popFirst() else { throw Misunderstanding(text: "'--port' needs a number") }
        guard let port = UInt16(text), port > 0 else { throw Misunderstanding(text: "'\(text)' is not a port") }
        return port
    }
}
