/// The parsed arguments.
enum Command: Equatable {
    case play(asJSON: Bool)
    case serve(port: UInt16?)
    case help
    /// A child process of the demo; see ``Relaunch`` and ``WorkerProcess``.
    case child([String])

    /// Unknown arguments.
    struct Misunderstanding: Error, Equatable {
        var text: String
    }

    static let manual = """
        swift run demo                    plays the acts, and exits with 1 if one of them fails
        swift run demo --json             the same, with the whole report as JSON
        swift run demo serve [--port N]   shows the running library in a browser, at 127.0.0.1 only; N is 1 to 65535,
                                          and a free port is chosen without it
        swift run demo help               prints this

        The acts: a backend on loopback (sign-in, rotating refresh tokens, short-lived access tokens, places of the world)
        and an app that uses MuxKit as its README shows. For each act: what the app asked for, who served it, what the
        server saw, and whether that is what the library promises. On a terminal a bar shows how far it is.

        Exit codes: 0 all went as promised, 1 something did not, 2 the arguments were not understood.

        Places: GeoNames (https://www.geonames.org), CC BY 4.0.
        """

    init(_ arguments: [String]) throws(Misunderstanding) {
        let rest = Array(arguments.dropFirst())
        switch arguments.first {
        case nil: self = .play(asJSON: false)
        case "--json" where rest.isEmpty: self = .play(asJSON: true)
        case "help" where rest.isEmpty, "--help" where rest.isEmpty, "-h" where rest.isEmpty: self = .help
        case "serve" where rest.isEmpty: self = .serve(port: nil)
        case "serve" where rest.first == "--port" && rest.count == 2:
            guard let port = UInt16(rest[1]), port > 0 else {
                throw Misunderstanding(text: "'\(rest[1])' is no port")
            }
            self = .serve(port: port)
        case Relaunch.argument, WorkerProcess.argument: self = .child(arguments)
        default: throw Misunderstanding(text: "there is no '\(arguments.joined(separator: " "))'")
        }
    }
}
