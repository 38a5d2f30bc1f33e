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
        .controls p { flex: 1 0 100%; min-height: 3em; }
        button {
          font: inherit; font-weight: 560; color: var(--ink); background: transparent; border: 1px solid var(--line);
          border-radius: 9px; padding: 8px 14px; min-height: 40px; cursor: pointer;
        }
        button:hover { border-color: var(--soft); } button[aria-disabled="true"] { opacity: .5; cursor: progress; }
        :focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
        .mark { font-weight: 700; color: var(--fresh); margin-right: 7px; } .mark.no { color: var(--bad); }
        .machines { list-style: none; display: grid; grid-template-columns: repeat(auto-fill, minmax(240px, 1fr)); gap: 14px; }
        .machines h2 { display: flex; justify-content: space-between; align-items: baseline; margin-bottom: 10px; }
        .cells { list-style: none; display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 5px; margin-bottom: 12px; }
        .cells li { border-radius: 7px; padding: 5px 4px; text-align: center; font-size: 12px; background: var(--track); color: var(--soft); overflow: hidden; }
        .cells li.fresh { background: var(--fresh); color: var(--on); }
        .cells li.own { background: var(--origin); color: var(--on); }
        .cells li.old { background: none; outline: 2px dashed var(--old); outline-offset: -2px; color: var(--old); }
        .cells b { display: block; font-size: 13px; }
        dl div { display: flex; justify-content: space-between; } dt { color: var(--soft); } dd { font-weight: 620; }
        .legend { display: flex; flex-wrap: wrap; gap: 4px 20px; }
        .legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; background: var(--track); }
        .legend .fresh { background: var(--fresh); } .legend .own { background: var(--origin); }
        .legend .old { background: none; outline: 2px dashed var(--old); outline-offset: -2px; }
        .log { list-style: none; display: grid; gap: 6px; }
        @media (max-width: 560px) { .controls button { flex: 1 0 45%; } .figures { gap: 10px; } }
        </style>
        </head>
        <body>
        <div class="page">
        <header>
          <div><h1>MuxKit, a fleet</h1><p class="small soft">Four machines of a service, one cache: <span id="engine-name"></span>.</p></div>
          <div><span class="chip bad" id="feed">Connecting</span> <span class="chip" id="engine">Store</span></div>
        </header>
        <main class="page-main">
        <section class="card figures" aria-label="Counts">
          <div><b data-count="requests">0</b><span class="soft small">requests of visitors</span></div>
          <div class="calls"><b data-count="calls">0</b><span class="soft small">calls of the origin</span></div>
          <div class="alone"><b data-count="callsAlone">0</b><span class="soft small">calls if each machine cached for itself</span></div>
        </section>
        <section class="card controls" aria-label="Try it">
          <button type="button" data-act="burst">Burst</button>
          <button type="button" data-act="change">Change an offer</button>
          <button type="button" data-act="engine">Kill the store</button>
          <button type="button" data-act="machine">Kill a machine in its fetch</button>
          <p id="outcome" role="status" class="soft">Visitors ask all the time. Each of twelve offers is fetched by one machine, for all.</p>
        </section>
        <ul class="machines" id="machines"></ul>
        <p class="legend small soft">
          <span><i class="own"></i>fetched by this machine</span><span><i class="fresh"></i>fetched by another one</span>
          <span><i class="old"></i>the origin has a newer one</span><span><i></i>not in memory</span>
        </p>
        <section class="card" aria-labelledby="log-title">
          <h2 id="log-title">What happened</h2>
          <ol class="log small" id="log"><li class="soft">Nothing yet.</li></ol>
        </section>
        </main>
        </div>
        <noscript><p class="page">This page draws what the library does with JavaScript.</p></noscript>
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
        const buttons = new Map([...document.querySelectorAll("button[data-act]")].map(node => [node.dataset.act, node]));
        const tiles = [];
        const pressed = new Set();
        let last;

        function tile() {
          const node = make("li", "card");
          const title = make("h2");
          const name = make("span"), count = make("span", "soft small");
          title.append(name, count);
          const list = make("ul", "cells");
          const cells = last.keys.map(key => {
            const cell = make("li");
            cell.title = key;
            cell.append(document.createTextNode(key), make("b"));
            list.append(cell);
            return cell;
          });
          const facts = make("dl", "small");
          const numbers = [["from memory", "hits"], ["joined one under way", "joins"], ["from the store", "fromStore"], ["fetched", "fetches"]].map(([text, fact]) => {
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

        function sentence(outcome) {
          const node = make("li");
          node.append(make("span", "mark" + (outcome.holds ? "" : " no"), outcome.holds ? "✓" : "✗"), make("span", "", outcome.text));
          return node;
        }

        function draw(state) {
          last = state;
          for (const [node, name] of counters) put(node, format.format(state[name]));
          put($("engine-name"), state.engine);
          $("engine").className = "chip" + (state.isEngineUp ? "" : " bad");
          put($("engine"), state.isEngineUp ? "Store up" : "Store gone");
          put(buttons.get("engine"), state.isEngineUp ? "Kill the store" : "Start the store");
          state.machines.forEach(drawMachine);
          if (state.outcomes.length && $("log").dataset.shown !== String(state.outcomes[0].number)) {
            $("log").dataset.shown = state.outcomes[0].number;
            $("log").replaceChildren(...state.outcomes.map(sentence));
          }
          for (const button of buttons.values()) mark(button, "aria-disabled", pressed.size > 0 || state.running.length > 0);
        }

        async function press(act) {
          if (buttons.get(act).getAttribute("aria-disabled") === "true") return;
          pressed.add(act);
          for (const button of buttons.values()) mark(button, "aria-disabled", true);
          try {
            const reply = await fetch("/act/" + act, { method: "POST" });
            if (reply.ok) $("outcome").replaceChildren(...sentence(await reply.json()).childNodes);
          } catch {
            $("outcome").replaceChildren(make("span", "mark no", "✗"), make("span", "", "The demo does not answer. Is it still running?"));
          } finally {
            pressed.delete(act);
            if (last) draw(last);
          }
        }

        for (const [act, button] of buttons) button.addEventListener("click", () => press(act));
        const feed = new EventSource("/events");
        feed.onopen = () => { $("feed").className = "chip"; put($("feed"), "Live"); };
        feed.onerror = () => { $("feed").className = "chip bad"; put($("feed"), "Connection lost"); };
        feed.onmessage = event => draw(JSON.parse(event.data));
        </script>
        </body>
        </html>
        """#
}
