"""Every button of the demo's page in every state: the text of the page matches the report of the demo, and fits at each width."""

import os
import pathlib
import signal
import subprocess
import time

LAYOUT = (pathlib.Path(__file__).parent / "layout.js").read_text()
WIDTHS = [(1280, 1000), (360, 800)]
ALL = ["storm", "refresh", "forget", "rename", "expire", "network", "download", "cut", "worker", "sign-out", "writes", "kill-writer"]
# The acts that request values exclude each other.
REQUESTS = ["storm", "refresh", "forget", "rename", "expire", "network"]

NO_VALUE = " No value is cached."
WORKER = "The worker reported * saved values before SIGKILL. The next process found *."
WRITER = "The writer reported * before SIGKILL. The next process continued. "
NOTHING_TO_RENAME = "Rename: No value is cached, so no place was renamed."
NOTHING_TO_CUT = "No film data is arriving, so no connection was cut."

# State, button, kind and text of the outcome. `*` is a number, or a part that differs between runs. A button leads
# to the state of the next line.
TABLE = [
    ("fresh", "forget", "noEffect", "Clear memory: The memory was empty, so no value was removed."),
    ("fresh", "rename", "noEffect", NOTHING_TO_RENAME),
    ("fresh", "expire", "noEffect", "Expire tokens: No user is signed in, so no token expired."),
    ("fresh", "sign-out", "noEffect", "Sign out: No user is signed in."),
    ("fresh", "cut", "noEffect", "Cut connection: " + NOTHING_TO_CUT),
    ("fresh", "worker", "held", "Kill worker: " + WORKER),
    ("fresh", "kill-writer", "held", "Kill: " + WRITER + "The server has * changes, none twice."),
    ("fresh", "writes", "held", "Offline: The server of the changes is offline. Changes wait on disk."),
    ("fresh", "kill-writer", "held", "Kill: " + WRITER + "* wait on disk."),
    ("fresh", "writes", "held", "Online: The server of the changes is online. * arrived, in order, none twice."),
    ("fresh", "network", "held", "Go offline: The server is offline." + NO_VALUE),
    ("offline, empty", "storm", "noEffect", "Storm: 5,000 requests by 200 callers: * fetches (all failed), 5,000 failed requests." + NO_VALUE),
    ("offline, empty", "refresh", "noEffect", "Refresh: No value was cached. 500 requests by 20 callers: * fetches (all failed), 500 failed requests."),
    ("offline, empty", "forget", "noEffect", "Clear memory: The memory was empty, so no value was removed."),
    ("offline, empty", "rename", "noEffect", NOTHING_TO_RENAME),
    ("offline, empty", "expire", "noEffect", "Expire tokens: No user is signed in, so no token expired."),
    ("offline, empty", "download", "noEffect", "Download film: The server is offline, so no download was started."),
    ("offline, empty", "cut", "noEffect", "Cut connection: " + NOTHING_TO_CUT),
    ("offline, empty", "worker", "held", "Kill worker: " + WORKER),
    ("offline, empty", "sign-out", "noEffect", "Sign out: No user is signed in."),
    ("offline, empty", "network", "held", "Go online: The server is online. Memory has 0 stale values."),
    ("fresh", "download", "held", "Download film: 20 callers received the same file over 1 connection, no byte sent twice."),
    ("fresh", "refresh", "noEffect", "Refresh: No value was cached. 500 requests by 20 callers: 25 fetches, 1 sign-in."),
    ("saved", "forget", "held", "Clear memory: 25 values removed from memory. 500 requests by 20 callers: 25 values from disk, 0 fetches."),
    ("saved", "rename", "held", "Rename: The screen showed * ms before the server had the name."),
    ("saved", "storm", "held", "Storm: 5,000 requests by 200 callers: 0 fetches."),
    ("saved", "refresh", "held", "Refresh: 25 values marked as stale. 500 requests by 20 callers: 25 fetches."),
    ("saved", "expire", "held", "Expire tokens: All access tokens expired. 2,500 requests by 100 callers: 25 fetches. The server refused * with status 401: 1 token refresh."),
    ("saved", "cut", "noEffect", "Cut connection: " + NOTHING_TO_CUT),
    ("saved", "worker", "held", "Kill worker: " + WORKER),
    ("saved", "network", "held", "Go offline: The server is offline. 25 values marked as stale. 500 requests by 20 callers: 25 fetches (all failed), 500 stale values."),
    ("offline", "storm", "held", "Storm: 5,000 requests by 200 callers: * fetches (all failed), 5,000 stale values."),
    ("offline", "refresh", "held", "Refresh: 25 values marked as stale. 500 requests by 20 callers: * fetches (all failed), 500 stale values."),
    ("offline", "rename", "held", "Rename: The server did not accept *. The screen showed the name for * ms, until the undo."),
    ("offline", "expire", "held", "Expire tokens: All access tokens expired. 2,500 requests by 100 callers: * fetches (all failed), 2,500 stale values. The server refused no request: 0 token refreshes."),
    ("offline", "forget", "held", "Clear memory: * removed from memory.* 500 requests by 20 callers: * fetches (all failed), 500 stale values."),
    ("offline", "download", "noEffect", "Download film: The server is offline, so no download was started."),
    ("offline", "cut", "noEffect", "Cut connection: " + NOTHING_TO_CUT),
    ("offline", "worker", "held", "Kill worker: " + WORKER),
    ("offline", "network", "held", "Go online: The server is online. Memory has 25 stale values."),
    ("stale", "storm", "held", "Storm: 5,000 requests by 200 callers: 25 fetches*."),
    ("saved", "sign-out", "held", "Sign out: Alice is signed out. Memory and disk have no value, token or film of Alice. Bob is the next user."),
    ("signed out", "sign-out", "noEffect", "Sign out: No user is signed in."),
    ("signed out", "forget", "noEffect", "Clear memory: The memory was empty, so no value was removed."),
    ("signed out", "rename", "noEffect", NOTHING_TO_RENAME),
    ("signed out", "expire", "noEffect", "Expire tokens: No user is signed in, so no token expired."),
    ("signed out", "cut", "noEffect", "Cut connection: " + NOTHING_TO_CUT),
    ("signed out", "worker", "held", "Kill worker: " + WORKER),
    ("signed out", "network", "held", "Go offline: The server is offline." + NO_VALUE),
    ("offline, empty", "network", "held", "Go online: The server is online. Memory has 0 stale values."),
    ("signed out", "download", "held", "Download film: 20 callers received the same file over 1 connection, no byte sent twice."),
    ("signed out", "storm", "held", "Storm: 5,000 requests by 200 callers: 25 fetches, 1 sign-in."),
]

CHIPS = {
    "fresh": "Connected, Server online, Signed out, next user: Alice",
    "offline, empty": "Connected, Server offline, Signed out, next user: *",
    "saved": "Connected, Server online, * is signed in",
    "stale": "Connected, Server online, * is signed in",
    "offline": "Connected, Server offline, * is signed in",
    "signed out": "Connected, Server online, Signed out, next user: Bob",
}


def matches(text, pattern):
    """Whether a text matches a pattern, in which `*` stands for any text."""
    first, *rest = pattern.split("*")
    if not text.startswith(first):
        return False
    place = len(first)
    for part in rest:
        found = text.find(part, place) if part else place
        if found < 0:
            return False
        place = found + len(part)
    return text.endswith(rest[-1]) if rest else text == pattern


class Table:
    """One run of the table, at one width."""

    def __init__(self, browser, url, process, check, width, height):
        self.browser, self.url, self.process, self.width = browser, url, process, width
        self.say = lambda text, holds: check(f"{width}: {text}", holds)
        browser.size(width, height)
        browser.media(prefers_color_scheme="light")

    def selector(self, act):
        return "#" + act if act in ("network", "writes") else f"button[data-act='{act}']"

    def texts(self):
        script = """
            const text = id => document.getElementById(id).textContent;
            const chips = [...document.querySelectorAll(".chip")].filter(it => it.checkVisibility());
            return { outcome: text("outcome").replace(/^[✓–✗]/, ""), running: text("running"), chips: chips.map(it => it.textContent).join(", "),
                     kind: document.querySelector("#outcome .mark")?.classList[1] ?? "" }
        """
        return self.browser.run(script)

    def expect(self, place, kind=None, outcome=None, chips=None, running=""):
        """Compares all texts of the page, and its layout."""
        texts = self.texts()
        expected = {"kind": kind, "outcome": outcome, "chips": chips, "running": running}
        problems = [
            f"{name} '{texts[name]}' is not '{text}'"
            for name, text in expected.items()
            if text is not None and not matches(texts[name], text)
        ] + self.browser.run(LAYOUT)
        self.say("; ".join([place] + problems) if problems else f"{place}: {texts['outcome']}", not problems)

    def fits(self, place):
        problems = self.browser.run(LAYOUT)
        self.say(f"{place}: {'; '.join(problems) or 'fits'}", not problems)

    def blocked(self, place, expected):
        blocked = "return [...document.querySelectorAll('button[data-act]')].filter(it => it.ariaDisabled === 'true').map(it => it.id || it.dataset.act)"
        found = self.browser.run(blocked)
        self.say(f"{place}: disabled are {found}", sorted(found) == sorted(expected))

    def click(self, act):
        self.browser.click(self.selector(act))

    def number(self):
        return self.browser.run("return view.snapshot.outcomes[0]?.number ?? 0")

    def latest(self):
        """The latest two outcomes, by act."""
        return self.browser.run("return Object.fromEntries(view.snapshot.outcomes.slice(0, 2).map(it => [it.act, it.result + ': ' + it.text]))")

    def wait(self, after, act, count=1):
        """Waits until the page shows `count` outcomes after the outcome `after`, and no act runs."""
        script = "view.isConnected && view.snapshot.outcomes[0]?.number >= arguments[0] && !view.snapshot.running.length"
        self.browser.until(f"{act} ends", script, after + count)

    def press(self, act):
        number = self.number()
        self.click(act)
        self.wait(number, act)

    def while_running(self, act, label, clicks):
        """Presses a button. In the turn in which the page shows that the act runs, reads the page and clicks other buttons.

        All happens in one script: a storm lasts for less than a second, and a slow driver needs longer for a few clicks.
        """
        script = """
            const [act, label, clicks] = arguments;
            const button = act => document.querySelector(`button[data-act='${act}']`) ?? document.getElementById(act);
            const running = document.getElementById("running");
            return new Promise(resolve => {
                const observer = new MutationObserver(() => {
                    if (!running.textContent.includes(label)) return;
                    observer.disconnect();
                    const blocked = [...document.querySelectorAll("button[data-act]")].filter(it => it.ariaDisabled === "true");
                    const problems = (() => { LAYOUT })();
                    clicks.forEach(it => button(it).click());
                    resolve({ running: running.textContent, blocked: blocked.map(it => it.id || it.dataset.act), problems });
                });
                observer.observe(running, { childList: true, characterData: true, subtree: true });
                button(act).click();
            });
        """
        return self.browser.run(script.replace("LAYOUT", LAYOUT), act, label, clicks)

    def begin_download(self):
        """Starts a download and waits until the page shows it."""
        self.click("download")
        self.browser.until("the download begins", "document.getElementById('running').textContent.includes('Download film')")

    def film(self, received):
        self.browser.until("film data arrives", "view.snapshot.film.received > arguments[0]", received)

    def open(self):
        self.browser.open(self.url)
        self.browser.until("the page is live", "view.isConnected")

    def play(self):
        self.open()
        self.expect("no action", outcome="No action yet. Storm starts 200 callers; each caller requests 25 values.", kind="", chips=CHIPS["fresh"])
        self.blocked("no action", [])
        previous = ""
        for state, act, kind, text in TABLE:
            if state == "saved":
                self.browser.until("values are saved", "view.snapshot.keys.every(key => key.isOnDisk)")
            if state != previous:
                self.expect(state, chips=CHIPS[state])
                previous = state
            self.press(act)
            self.expect(f"{state}, {act}", kind, text)
        self.during_a_storm()
        self.during_a_download()
        self.reloaded()
        self.two_tabs()
        self.worker_ended()
        self.large_numbers()
        self.silent()

    def during_a_storm(self):
        self.press("refresh")
        self.press("sign-out")
        number = self.number()
        page = self.while_running("storm", "Storm", REQUESTS + ["cut"])
        self.say(f"during a storm: disabled are {page['blocked']}", sorted(page["blocked"]) == sorted(REQUESTS))
        self.say(f"during a storm: {page['running']}", page["running"] == "Running: Storm.")
        self.say(f"during a storm: {'; '.join(page['problems']) or 'fits'}", not page["problems"])
        self.wait(number, "storm and cut", 2)
        outcomes = self.latest()
        self.say(f"during a storm, cut: {outcomes['cut']}", outcomes["cut"] == "noEffect: " + NOTHING_TO_CUT)
        self.say(f"a storm ends: {outcomes['storm']}", outcomes["storm"] == "held: 5,000 requests by 200 callers: 25 fetches, 1 sign-in.")
        self.say("disabled buttons had no effect", self.number() == number + 2)
        self.while_running("refresh", "Refresh", ["sign-out"])
        self.wait(number + 2, "refresh and sign-out", 2)
        outcomes = self.latest()
        self.say(f"during a refresh, sign-out: {outcomes}", "held: " in outcomes["sign-out"] and outcomes["refresh"].startswith("held: "))

    def during_a_download(self):
        number = self.number()
        self.begin_download()
        self.blocked("during a download", ["download"])
        self.film(1e6)
        self.click("cut")
        self.browser.until("cut ends", "view.snapshot.outcomes[0].act === 'cut'")
        self.expect("during a download, cut", "held", "Cut connection: The server cut the connection after * MB. The download resumed at * MB.", running="Running: Download film.")
        self.wait(number, "download", 2)
        self.expect("a cut download ends", "held", "Download film: 20 callers received the same file over 2 connections, * sent twice.")
        self.say("the film is stored", self.browser.run("return document.getElementById('film-state').textContent") == "stored, 8.0 MB")

        self.begin_download()
        self.film(1e6)
        self.click("network")
        self.wait(number + 2, "network and download", 2)
        outcomes = self.latest()
        self.say(f"during a download, offline: {outcomes}", matches(outcomes["download"], "noEffect: The server went offline after * MB, and the download failed."))
        state = self.browser.run("return document.getElementById('film-state').textContent")
        self.say(f"the film: {state}", matches(state, "stopped at * MB"))
        self.press("network")

        number = self.number()
        self.press("storm")
        self.begin_download()
        self.film(1e6)
        self.click("sign-out")
        self.wait(number + 1, "sign-out and download", 2)
        outcomes = self.latest()
        self.say(f"during a download, sign-out: {outcomes}", outcomes["download"] == "held: The sign-out ended the download." and outcomes["sign-out"].startswith("held: "))
        self.say("no film is left", self.browser.run("return document.getElementById('film-state').textContent") == "not stored")

    def reloaded(self):
        before = self.texts()
        self.open()
        self.expect("after a reload", outcome=before["outcome"], kind=before["kind"], chips=before["chips"])

    def two_tabs(self):
        first = self.browser.call("GET", "/window")
        second = self.browser.call("POST", "/window/new", {"type": "tab"})["handle"]
        self.browser.call("POST", "/window", {"handle": second})
        self.open()
        self.press("storm")
        here = self.texts()
        number = self.number()
        self.browser.call("DELETE", "/window")
        self.browser.call("POST", "/window", {"handle": first})
        self.wait(number - 1, "the other tab")
        self.say("two tabs show the same", self.texts() == here)
        # Both tabs press the same button, before either shows the effect.
        both = "return Promise.all([1, 2].map(() => fetch('/act/offline', { method: 'POST' }).then(it => it.status)))"
        self.say("two tabs go offline, and the demo refuses the second request", sorted(self.browser.run(both)) == [200, 409])
        self.wait(number, "offline")
        self.expect("two tabs went offline", chips="Connected, Server offline, * is signed in")
        self.press("network")

    def worker_ended(self):
        os.kill(self.browser.run("return view.snapshot.worker.pid"), signal.SIGKILL)
        self.browser.until("the end of the worker is shown", "/^ended, process/.test(document.getElementById('worker-state').textContent)")
        self.press("worker")
        self.expect("the worker ended before", "noEffect", "Kill worker: The worker had ended already. A new process was started.")
        self.press("worker")
        self.expect("the next worker", "held", "Kill worker: " + WORKER)

    def large_numbers(self):
        """Long numbers and long names."""
        script = """
            const big = structuredClone(view.snapshot), [scale, name, isFlying] = arguments;
            for (const counts of [big.app, big.server, big.disk]) for (const it in counts) counts[it] = scale;
            big.user = name;
            big.isSignedIn = true;
            for (const key of big.keys) {
              [key.hits, key.joins, key.waiting, key.name] = [scale, scale, scale, name];
              if (isFlying) key.flight = "network";
            }
            for (const token of big.tokens) [token.epoch, token.user] = [scale, name];
            big.screen.name = name;
            big.screen.states = big.screen.states.map(() => name + ", not on the server yet, stale, loading");
            big.worker.pid = scale;
            for (const it of ["pid", "added", "waiting", "applied", "repetitions", "twice"]) big.writer[it] = scale;
            for (const round of big.worker.rounds) [round.reported, round.found.entries, round.found.tornBytes] = [scale, scale, scale];
            for (const outcome of big.outcomes) outcome.text = name;
            update({ snapshot: big });
        """
        words = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch upon a very long name"
        for scale in [1_000, 12_345, 1_234_567]:
            for is_flying in [False, True]:
                # One script, because the next report of the demo replaces the state.
                problems = self.browser.run(script + "return (() => {" + LAYOUT + "})()", scale, words, is_flying)
                self.say(f"{scale:,} and long names{' in flight' if is_flying else ''}: {problems or 'fits'}", not problems)
        shown = self.browser.run(script + "return [...counters.map(([it]) => it), ...document.querySelectorAll('.hits, .joins')].map(it => it.textContent)", 1_234_567, words, False)
        self.say("numbers are shown with all digits", set(shown) == {"1,234,567"})
        folder = os.environ.get("MUX_SHOTS")
        if folder:
            self.browser.shoot(f"{folder}/large-{self.width}.png")
        for scheme in ["dark", "light"]:
            self.browser.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            self.fits(scheme)

    def silent(self):
        self.process.send_signal(signal.SIGSTOP)
        try:
            self.browser.until("the page notices the silence", "!view.isConnected")
            self.expect("a silent demo", kind="failed", outcome="No connection to the demo. The page shows the state of *.", chips="No connection")
            self.blocked("a silent demo", ["network"] + [it for it in ALL if it != "network"])
        finally:
            self.process.send_signal(signal.SIGCONT)
        self.browser.until("the page notices the demo", "view.isConnected")
        self.blocked("the demo is back", [])

    def gone(self):
        """After the end of the demo."""
        self.browser.until("the page notices the end", "!view.isConnected")
        for act in ALL:
            self.click(act)
        self.expect("the demo has ended", kind="failed", outcome="No connection to the demo. The page shows the state of *.", chips="No connection")
        self.blocked("the demo has ended", ALL)

    def restarted(self):
        """After the start of another demo on the same port."""
        self.browser.until("the page finds the next demo", "view.isConnected")
        self.expect("another demo", kind="", outcome="No action yet.*", chips=CHIPS["fresh"])
        self.say("another demo: no old actions", self.browser.run("return document.getElementById('log').textContent") == "No action yet.")


def play_table(make_browser, demo, check):
    """Plays the table at each width, with a new demo for each width."""
    for width, height in WIDTHS:
        start = time.monotonic()
        serving = subprocess.Popen([demo, "serve"], stdout=subprocess.PIPE, text=True)
        browser = make_browser()
        try:
            url = serving.stdout.readline().strip().rsplit(" ", 1)[1]
            table = Table(browser, url, serving, check, width, height)
            table.play()
            serving.terminate()
            serving.wait(timeout=20)
            table.gone()
            serving = subprocess.Popen([demo, "serve", "--port", url.rsplit(":", 1)[1].strip("/")], stdout=subprocess.PIPE, text=True)
            table.restarted()
        finally:
            browser.close()
            serving.terminate()
            serving.wait(timeout=20)
        print(f"{width}: the table took {time.monotonic() - start:.0f} s")
