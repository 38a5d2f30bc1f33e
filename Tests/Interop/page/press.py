"""Presses every button of the demo's page, and reports broken promises."""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

from browser import Browser
from states import LAYOUT, play_table

KEYS = 25
problems = []


def check(what, holds):
    print(("  ok    " if holds else "  FAILED ") + what, flush=True)
    if not holds:
        problems.append(what)


class Page:
    def __init__(self, browser):
        self.browser = browser

    def count(self, name):
        text = self.browser.run("return document.querySelector(`[data-count='${arguments[0]}']`).textContent", name)
        return int(text.replace(",", ""))

    def text(self, selector):
        return self.browser.run("return document.querySelector(arguments[0]).textContent", selector)

    def wait_for_count(self, name, number):
        script = "document.querySelector(`[data-count='${arguments[0]}']`).textContent.replace(/,/g, '') == arguments[1]"
        self.browser.until(f"{name} is {number}", script, name, str(number))

    def wait_for_outcome(self, act, number):
        """Waits until the act has an outcome with at least this number, and does not run."""
        self.browser.until(
            f"{act} ends",
            "view.snapshot.outcomes.some(it => it.number >= arguments[1] && it.act == arguments[0])"
            " && !view.snapshot.running.includes(arguments[0])",
            act,
            number,
        )

    def press(self, act):
        """Presses a button, waits for the end of the act, and returns the text of the outcome."""
        number = self.browser.run("return Math.max(0, ...view.snapshot.outcomes.map(it => it.number)) + 1")
        self.browser.click(f"button[data-act='{act}']")
        self.wait_for_outcome(act, number)
        said = self.text("#outcome")
        print(f"{act}: {said}")
        check(f"{act} went as promised", said.startswith("✓"))
        return said


def status(url, method="GET", **headers):
    headers = {name.title(): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def play(page, url, pid):
    browser = page.browser
    folder = os.environ.get("MUX_SHOTS")

    def shoot(name):
        if folder:
            browser.shoot(f"{folder}/{name}.png")

    browser.size(1440, 1100)
    browser.open(url)
    browser.until("the page is live", "view.isConnected")
    shoot("first")

    browser.click("button[data-act='storm']")
    browser.until(
        "flights and their callers are shown",
        "view.snapshot.app.waiting > 500 && document.querySelectorAll('li.flying').length > 5",
    )
    shoot("storm-light-wide")
    page.wait_for_outcome("storm", 1)
    check("5,000 requests", page.count("app.requests") == 5_000)
    check("one fetch for each of 25 keys", page.count("app.fetches") == KEYS)
    check("the server received each fetch", page.count("server.resources") == KEYS)
    check("one sign-in and no refresh", page.count("server.signIns") == 1 and page.count("server.refreshes") == 0)
    check("the rest hit or joined", page.count("app.hits") + page.count("app.joins") == 5_000 - KEYS)
    told = browser.run("return view.snapshot.keys.reduce((sum, key) => sum + key.hits + key.joins + key.fetches, 0)")
    check("the counts of the keys add up", told == 5_000)
    check("rings run down", browser.run("return view.snapshot.keys.every(key => key.timeToLive >= 60 && key.timeToLive <= 120)"))
    page.wait_for_count("disk.entries", KEYS)

    page.press("storm")
    check("repeated requests are served from memory", page.count("app.fetches") == KEYS and page.count("app.requests") == 10_000)

    page.press("forget")
    check("after a clear of memory, values come from disk", page.count("app.diskHits") == KEYS)
    check("without a fetch", page.count("app.fetches") == KEYS)

    former = page.text("#screen-name")
    requests = page.count("server.resources")
    browser.click("button[data-act='rename']")
    browser.until(
        "the screen shows the new name, in another colour, before the server has the name",
        "view.snapshot.screen.isChanged && document.getElementById('screen-name').classList.contains('changed')",
    )
    page.wait_for_outcome("rename", 4)
    check("the screen shows the server's new name", page.text("#screen-name") not in (former, "No value"))
    check("after a change, the screen's place is fetched once", page.count("server.resources") == requests + 2)
    states = browser.run("return [...document.querySelectorAll('#screen-states li')].map(it => it.textContent)")
    check(f"the states of the change: {states}", any("not on the server yet" in it for it in states) and "loading" in states[1])

    page.press("expire")
    check("expired tokens were refused", page.count("server.refusals") >= 1)
    check("one refresh for all", page.count("server.refreshes") == 1 and page.count("server.signIns") == 1)
    check("no refresh token was used twice", page.count("server.reuses") == 0)
    check("two epochs", browser.run("return document.querySelectorAll('#tokens li').length") == 2)
    epochs = browser.run("return view.snapshot.tokens.map(it => it.epoch)")
    check("the epochs increase", epochs == sorted(set(epochs)))

    resources = page.count("server.resources")
    page.press("refresh")
    check("a refresh fetches everything once", page.count("server.resources") == resources + KEYS)

    page.press("offline")
    check("offline is shown", page.text("#online") == "Server offline")
    check("stale values are served", page.count("app.stale") > 0)
    check("keys are marked as stale", browser.run("return document.querySelectorAll('li.stale').length") == KEYS)
    name = page.text("#screen-name")
    check("the screen shows the failure", page.text("#screen-states li") == name + ", stale, failed")
    page.press("rename")
    check("the screen shows the former name", page.text("#screen-name") == name)
    states = browser.run("return view.snapshot.screen.states")
    check(f"the states of the undo: {states}", any("not on the server yet" in it for it in states))
    shoot("offline-light-wide")
    page.press("online")
    check("online is shown", page.text("#online") == "Server online")
    page.press("storm")
    check("all keys are fresh again", browser.run("return document.querySelectorAll('li.stale').length") == 0)

    number = browser.run("return view.snapshot.outcomes[0].number + 1")
    browser.click("button[data-act='download']")
    browser.until("film data arrives", "view.snapshot.film.received > 2e6")
    page.press("cut")
    browser.until("the download continues after the cut", "view.snapshot.film.starts.length > 1 && view.snapshot.film.received > 4e6")
    shoot("film-light-wide")
    page.wait_for_outcome("download", number)
    starts = browser.run("return view.snapshot.film.starts")
    check("the download resumed at the cut", len(starts) == 2 and 0 < starts[1] < 8_000_000)
    check("the film is stored", page.text("#film-state") == "stored, 8.0 MB")
    check("no byte was sent twice", browser.run("return view.snapshot.film.sent == view.snapshot.film.total"))

    worker = browser.run("return view.snapshot.worker.pid")
    page.press("worker")
    page.press("worker")
    rounds = browser.run("return view.snapshot.worker.rounds")
    check("the worker was killed twice", len(rounds) == 2 and browser.run("return view.snapshot.worker.pid") != worker)
    check("every value reported as saved was found", all(it["found"]["entries"] >= it["reported"] for it in rounds))

    writer = browser.run("return view.snapshot.writer.pid")
    page.press("kill-writer")
    check("the writer was killed", browser.run("return view.snapshot.writer.pid") != writer)
    check("the server has all reported changes", page.count("writer.applied") >= page.count("writer.added") > 0)
    page.press("writes-offline")
    applied = page.count("writer.applied")
    page.press("kill-writer")
    check("changes wait on disk", page.count("writer.waiting") > 0 and page.count("writer.applied") == applied)
    shoot("outbox-offline")
    page.press("writes-online")
    page.wait_for_count("writer.waiting", 0)
    check("the changes arrived", page.count("writer.applied") >= page.count("writer.added") > applied)
    check("lost responses led to repetitions", page.count("writer.repetitions") > 0)
    check("no change was applied twice", page.count("writer.twice") == 0)

    for scheme in ["light", "dark"]:
        for name, width, height in [("wide", 1440, 1100), ("middle", 900, 1200), ("narrow", 390, 844)]:
            browser.size(width, height)
            browser.media(prefers_color_scheme=scheme)
            time.sleep(0.4)  # colours fade
            check(
                f"{scheme} and {name}: the page fits the window",
                browser.run("return document.documentElement.scrollWidth <= innerWidth"),
            )
            shoot(f"{scheme}-{name}")
    browser.size(1440, 1100)

    # By keyboard alone: the focus must be visible.
    number = browser.run("return view.snapshot.outcomes[0].number + 1")
    browser.run("document.activeElement.blur()")
    browser.type("button[data-act='sign-out']", "\ue007")
    page.wait_for_outcome("sign-out", number)
    check("signed out by keyboard", page.text("#user") == "Signed out, next user: Bob")
    check("the focus is visible", browser.run(
        "return document.activeElement.dataset.act == 'sign-out' && getComputedStyle(document.activeElement).outlineStyle == 'solid'"
    ))
    check("the disk is empty", page.count("disk.entries") == 0 and page.count("disk.epoch") == 1)
    check("memory is empty", browser.run("return view.snapshot.keys.every(key => key.age === undefined)"))
    check("the film is removed", page.text("#film-state") == "not stored")
    shoot("signed-out-dark-wide")
    page.press("storm")
    check("Bob signs in once", page.count("server.signIns") == 2 and page.text("#user") == "Bob is signed in")
    check("the page shows Bob's profile", browser.run("return view.snapshot.keys[0].name") == "Me, Bob")

    numbers = "return counters.every(([node]) => /^[0-9,]+$/.test(node.textContent))"
    check("every counter shows a number", browser.run(numbers))
    check("outcomes are read aloud", browser.run("return document.getElementById('outcome').parentElement.role") == "status")
    browser.media(prefers_reduced_motion="reduce")
    still = "return getComputedStyle(document.querySelector('.orbit')).animationName == 'none'"
    check("no animation runs with reduced motion", browser.run(still))

    page.wait_for_count("disk.entries", KEYS)
    before = cpu_seconds(pid)
    time.sleep(5)
    used = cpu_seconds(pid) - before
    print(f"at rest, with the page open: {used * 1000:.0f} ms of CPU in 5 s")
    check("an idle demo uses little processor time", used <= 0.05)

    console = [entry for entry in browser.console() if entry["level"] in ("SEVERE", "WARNING")]
    for entry in console:
        print("console:", entry["message"])
    check("the console is quiet", not console)

    other = url.replace("127.0.0.1", "localhost")
    check("localhost is accepted", status(other) == 200)
    check("a foreign host is refused", status(url, host="evil.example") == 421)
    check("a press from a foreign origin is refused", status(url + "act/storm", "POST", origin="http://evil.example") == 403)
    check("a press without an origin is refused", status(url + "act/storm", "POST") == 403)
    check("a press by GET is not found", status(url + "act/storm") == 404)


def play_fleet(page, url, pid):
    browser = page.browser
    folder = os.environ.get("MUX_SHOTS")

    def shoot(name):
        if folder:
            browser.shoot(f"{folder}/{name}.png")

    def names():
        return browser.run("return view.snapshot.machines.map(it => it.name)")

    browser.size(1280, 1000)
    browser.open(url)
    browser.until("the page is live", "view.isConnected")
    check("four machines", len(names()) == 4)
    browser.until("visitors send requests", "view.snapshot.requests > 20 && view.snapshot.calls > 0")

    said = page.press("burst")
    check("one call for each offer", "12 calls of the origin for 12 offers" in said)
    shoot("fleet-burst-light")
    page.press("change")
    before = names()
    page.press("machine")
    check("another machine takes the place", len(set(names()) - set(before)) == 1)

    page.press("stop")
    check("the store is stopped", page.text("#engine") == "Store stopped")
    page.press("burst")
    shoot("fleet-gone-light")
    page.press("change")
    page.press("machine")
    requests = page.count("requests")
    browser.until("visitors continue", "view.snapshot.requests > arguments[0] + 20", requests)
    page.press("start")
    check("the store is back", page.text("#engine") == "Store runs")
    said = page.press("burst")
    check("machines share again", "12 calls of the origin for 12 offers" in said)
    page.press("change")
    check("sharing saves calls", page.count("callsAlone") > page.count("calls"))

    for scheme in ["light", "dark"]:
        for name, width, height in [("wide", 1280, 1000), ("narrow", 360, 800)]:
            browser.size(width, height)
            browser.media(prefers_color_scheme=scheme)
            problems = browser.run(LAYOUT)
            check(f"{scheme} and {name}: {problems or 'fits'}", not problems)
            shoot(f"fleet-{scheme}-{name}")

    before = page.text("#outcome")
    browser.open(url)
    browser.until("the page is live", "view.isConnected")
    check("a reload shows the latest outcome", page.text("#outcome") == before)
    os.kill(pid, signal.SIGSTOP)
    try:
        browser.until("the page notices the silence", "!view.isConnected")
        check("no state of the store is shown", not browser.run("return document.getElementById('engine').checkVisibility()"))
        check("no button can be pressed", browser.run("return buttons.every(it => it.ariaDisabled === 'true')"))
    finally:
        os.kill(pid, signal.SIGCONT)
    browser.until("the page notices the demo", "view.isConnected")

    console = [entry for entry in browser.console() if entry["level"] in ("SEVERE", "WARNING")]
    for entry in console:
        print("console:", entry["message"])
    check("the console is quiet", not console)


def serve(command, play, driver, path):
    """Starts a command and tests the page that the command serves."""
    serving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    browser = None
    try:
        url = serving.stdout.readline().strip().rsplit(" ", 1)[1]
        browser = Browser(driver, path)
        play(Page(browser), url, serving.pid)
    finally:
        if browser:
            browser.close()
        serving.terminate()
        code = serving.wait(timeout=20)
    check("the command ends with status 0", code == 0)


def main():
    """Arguments: the browser's driver, the browser, the program `demo`, and optional programs that show a fleet on a real engine."""
    driver, path, demo, *fleets = sys.argv[1:]
    play_table(lambda: Browser(driver, path), demo, check)
    serve([demo, "serve"], play, driver, path)
    for command in [[demo, "fleet"]] + [[fleet] for fleet in fleets]:
        print("\n" + " ".join([os.path.basename(command[0])] + command[1:]))
        serve(command, play_fleet, driver, path)
    if problems:
        sys.exit(f"page: {len(problems)} problems")
    print("page: all checks passed")


main()
