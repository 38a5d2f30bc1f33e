extension FleetStage {
    /// The page.
    static let html = #"""
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <title>MuxKit, a fleet</title>
        <link rel="icon" href="data:,">
        <style nonce="{{nonce}}">
        :root {
          --paper: #f7f6f3; --card: #fffefc; --ink: #1d1c1a; --soft: #66625b; --line: #e2ded6; --track: #ebe7df;
          --fresh: #0f766e; --origin: #b4481b; --old: #a16207; --bad: #b42318; --focus: #4f46a5; --on: #fffefc;
        }
        @media (prefers-color-scheme: dark) {
          :root {
            --paper: #131312; --card: #1c1c1a; --ink: #f0eee9; --soft: #a3a098; --line: #2f2e2b; --track: #2b2a27;
            --fresh: #45c3b1; --origin: #f0915f; --old: #e0b04a; --bad: #f4877d; --focus: #a59cf5; --on: #131312;
          }
        }
        .page-main { display: contents; }
        * { box-sizing: border-box; margin: 0; padding: 0; }
        body {
          background: var(--paper); color: var(--ink); font: 15px/1.5 Inter, ui-sans-serif, system-ui, sans-serif;
          font-variant-numeric: tabular-nums;
        }
        .page { max-width: 1120px; margin: 0 auto; padding: 28px clamp(16px, 3vw, 40px) 56px; display: grid; gap: 14px; }
        header { display: flex; flex-wrap: wrap; align-items: center; justify-content: space-between; gap: 8px 20px; }
        h1 { font-size: 20px; letter-spacing: -.02em; } h2 { font-size: 15px; }
        .soft { color: var(--soft); } .small { font-size: 13px; }
        .card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 18px 20px; }
        .chip { border: 1px solid var(--line); border-radius: 99px; padding: 4px 12px; font-size: 13px; background: var(--card); }
        .chip::before {
          content: ""; display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 7px;
          background: var(--fresh);
        }
        .chip.bad { color: var(--bad); } .chip.bad::before { background: var(--bad); }
        .figures { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 16px; }
        .figures b { display: block; font-size: clamp(30px, 5vw, 56px); letter-spacing: -.04em; line-height: 1.1; }
        .figures .calls b { color: var(--origin); } .figures .alone b { color: var(--soft); }
        .controls { display: flex; flex-wrap: wrap; gap: 10px; }
        .outcome { flex: 1 0 100%; display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 22px; min-height: 3em; }
        .outcome p { display: flex; overflow-wrap: anywhere; }
        button {
          font: inherit; font-weight: 560; color: var(--ink); background: transparent; border: 1px solid var(--line);
          border-radius: 9px; padding: 8px 14px; min-height: 40px; cursor: pointer;
        }
        button:hover { border-color: var(--soft); }
        button[aria-disabled="true"] { color: var(--soft); background: var(--track); border-color: var(--track); cursor: default; }
        .chip[hidden] { display: none; } .lost main > :not(.controls) { filter: grayscale(1); }
        :focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
        .mark { font-weight: 700; color: var(--fresh); margin-right: 7px; } .mark.no { color: var(--bad); }
        .machines { list-style: none; display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 14px; }
        .machines h2 { display: flex; justify-content: space-between; align-items: baseline; margin-bottom: 10px; }
        .cells { list-style: none; display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 5px; margin-bottom: 12px; }
        .cells li { border-radius: 7px; padding: 5px 4px; text-align: center; font-size: 12px; background: var(--track); color: var(--soft); overflow-wrap: anywhere; }
        .cells li.fresh { background: var(--fresh); color: var(--on); }
        .cells li.own { background: var(--origin); color: var(--on); }
        .cells li.old { background: none; outline: 2px dashed var(--old); outline-offset: -2px; color: var(--old); }
        .cells b { display: block; font-size: 13px; }
        dl div { display: flex; justify-content: space-between; } dt { color: var(--soft); } dd { font-weight: 620; }
        .legend { display: flex; flex-wrap: wrap; gap: 4px 20px; }
        .legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; background: var(--track); }
        .legend .fresh { background: var(--fresh); } .legend .own { background: var(--origin); }
        .legend .old { background: none; outline: 2px dashed var(--old); outline-offset: -2px; }
        .log { list-style: none; display: grid; gap: 6px; margin-top: 10px; } .log li { display: flex; }
        @media (max-width: 560px) { .controls button { flex: 1 0 45%; min-height: 44px; } .outcome { display: block; min-height: 6em; } .figures { grid-template-columns: 1fr; gap: 10px; } }
        </style>
        </head>
        <body>
        <div class="page">
        <header>
          <div><h1>MuxKit, a fleet</h1><p class="small soft">Four machines of a service, one cache: <span id="engine-name"></span>.</p></div>
          <div><span class="chip" id="feed">Connecting</span> <span class="chip" id="engine" hidden></span></div>
        </header>
        <main class="page-main">
        <section class="card figures" aria-label="Counts">
          <div><b data-count="requests">–</b><span class="soft small">requests of visitors</span></div>
          <div class="calls"><b data-count="calls">–</b><span class="soft small">calls of the origin</span></div>
          <div class="alone"><b data-count="callsAlone">–</b><span class="soft small">calls if each machine cached for itself</span></div>
        </section>
        <section class="card controls" aria-label="Actions">
          <button type="button" data-act="burst">Burst</button>
          <button type="button" data-act="change">Change an offer</button>
          <button type="button" data-act="stop" id="store">Kill the store</button>
          <button type="button" data-act="machine">Kill a machine during a fetch</button>
          <div class="outcome" role="status"><p id="outcome"></p><p class="soft" id="running"></p></div>
        </section>
        <ul class="machines" id="machines"></ul>
        <p class="legend small soft">
          <span><i class="own"></i>fetched by this machine</span><span><i class="fresh"></i>fetched by another machine</span>
          <span><i class="old"></i>older than the offer of the origin</span><span><i></i>not in memory</span>
        </p>
        <section class="card" aria-labelledby="log-title">
          <h2 id="log-title">Latest actions</h2>
          <ol class="log small" id="log"></ol>
        </section>
        </main>
        </div>
        <noscript><p class="page">This page needs JavaScript.</p></noscript>
        <script nonce="{{nonce}}">
        "use strict";
        const $ = id => document.getElementById(id);
        const format = new Intl.NumberFormat("en");
        const put = (node, text) => { text = String(text); if (node.textContent !== text) node.textContent = text; };
        const mark = (node, name, value) => { if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value); };
        const make = (tag, className, text) => {
          const node = document.createElement(tag);
          if (className) node.className = className;
          if (text !== undefined) node.textContent = text;
          return node;
        };
        const counters = [...document.querySelectorAll("[data-count]")].map(node => [node, node.dataset.count]);
        const buttons = [...document.querySelectorAll("button[data-act]")];
        const labels = Object.fromEntries(buttons.map(button => [button.dataset.act, button.textContent]));
        labels.start = "Start the store";
        const tiles = [];

        /* The state of the page. The snapshot is the latest report of the demo. */
        const view = { isConnected: false, isLost: false, reportedAt: undefined, snapshot: undefined, refusal: undefined };

        function update(change) {
          Object.assign(view, change);
          render();
        }

        /* Draws the state: no text on the page has another source. */
        function render() {
          const { isConnected, isLost, snapshot } = view;
          chip("feed", isConnected ? "Connected" : isLost ? "No connection" : "Connecting", !isConnected);
          $("engine").hidden = !isConnected;
          document.body.classList.toggle("lost", !isConnected);
          if (snapshot) draw(snapshot);
          for (const button of buttons) mark(button, "aria-disabled", !isConnected || snapshot.running.length > 0);
          const [kind, text] = message();
          $("outcome").replaceChildren(...line(kind, text));
          put($("running"), isConnected && snapshot.running.length ? "Running: " + labels[snapshot.running[0]] + "." : "");
        }

        function message() {
          const { isConnected, isLost, reportedAt, snapshot, refusal } = view;
          if (isLost) return ["no", "No connection to the demo." + (snapshot ? " The page shows the state of " + reportedAt + "." : "")];
          if (!isConnected) return ["", "Connecting to the demo."];
          if (refusal) return ["no", refusal];
          const [latest] = snapshot.outcomes;
          return latest ? [latest.holds ? "yes" : "no", latest.text] : ["", "No action yet. Visitors request twelve offers all the time; one machine fetches each offer for all machines."];
        }

        function chip(id, text, isBad) {
          mark($(id), "class", "chip" + (isBad ? " bad" : ""));
          put($(id), text);
        }

        function tile() {
          const node = make("li", "card");
          const title = make("h2");
          const name = make("span"), count = make("span", "soft small");
          title.append(name, count);
          const list = make("ul", "cells");
          const cells = view.snapshot.keys.map(key => {
            const cell = make("li");
            cell.title = key;
            cell.append(document.createTextNode(key), make("b"));
            list.append(cell);
            return cell;
          });
          const facts = make("dl", "small");
          const numbers = [["from memory", "hits"], ["joined a running fetch", "joins"], ["from the store", "fromStore"], ["fetched", "fetches"]].map(([text, fact]) => {
            const row = make("div");
            row.append(make("dt", "", text), make("dd"));
            facts.append(row);
            return [row.lastChild, fact];
          });
          node.append(title, list, facts);
          $("machines").append(node);
          return { node, name, count, cells, numbers };
        }

        function drawMachine(machine, index) {
          const it = tiles[index] ??= tile();
          put(it.name, "Machine " + machine.name);
          put(it.count, format.format(machine.requests) + " requests");
          for (const [node, fact] of it.numbers) put(node, format.format(machine[fact]));
          machine.cells.forEach((cell, place) => {
            const kind = !cell || cell.left <= 0 ? "" : cell.isOld ? "old" : cell.machine === machine.name ? "own" : "fresh";
            if (it.cells[place].className !== kind) it.cells[place].className = kind;
            put(it.cells[place].lastChild, kind ? Math.ceil(cell.left) + " s" : "–");
          });
        }

        function line(kind, text) {
          if (!kind) return [make("span", "soft", text)];
          const sign = make("span", "mark " + kind, kind === "yes" ? "✓" : "✗");
          sign.role = "img";
          sign.ariaLabel = kind === "yes" ? "As promised" : "Failed";
          return [sign, make("span", "", text)];
        }

        function draw(state) {
          for (const [node, name] of counters) put(node, format.format(state[name]));
          put($("engine-name"), state.engine);
          chip("engine", state.isEngineUp ? "Store runs" : "Store stopped", !state.isEngineUp);
          $("store").dataset.act = state.isEngineUp ? "stop" : "start";
          put($("store"), labels[$("store").dataset.act]);
          state.machines.forEach(drawMachine);
          const latest = state.outcomes[0]?.number ?? 0;
          if ($("log").dataset.shown === String(latest)) return;
          $("log").dataset.shown = latest;
          const lines = latest ? state.outcomes.map(outcome => line(outcome.holds ? "yes" : "no", outcome.text)) : [line("", "No action yet.")];
          $("log").replaceChildren(...lines.map(parts => {
            const node = make("li");
            node.append(...parts);
            return node;
          }));
        }

        async function press(button) {
          if (button.getAttribute("aria-disabled") === "true") return;
          const act = button.dataset.act;
          update({ refusal: undefined });
          /* The outcome and a lost connection arrive with the events. */
          const reply = await fetch("/act/" + act, { method: "POST" }).catch(() => undefined);
          if (reply && !reply.ok && reply.status !== 409) update({ refusal: labels[act] + ": the demo refused the action with status " + reply.status + "." });
        }

        /* The demo reports at least once a second. */
        let silence;
        function connected(event) {
          clearTimeout(silence);
          silence = setTimeout(lost, 5000);
          update({ isConnected: true, isLost: false, reportedAt: new Date().toLocaleTimeString("en-GB"), snapshot: JSON.parse(event.data) });
        }

        function lost() {
          update({ isConnected: false, isLost: true, refusal: undefined });
        }

        for (const button of buttons) button.addEventListener("click", () => press(button));
        const feed = new EventSource("/events");
        feed.onmessage = connected;
        feed.onerror = lost;
        render();
        </script>
        </body>
        </html>
        """#
}
