"use strict";
// The page is drawn from the states that the server sends. It makes no request besides that.

const SVG = "http://www.w3.org/2000/svg";
const spans = { "5 min": 300, "1 h": 3600, "6 h": 21600, "1 d": 86400, "all": 0 };
const page = { states: [], url: location.hash.slice(1), span: "", seen: {}, skew: 0, lost: false, inner: false };

// make creates an element with attributes and children. Text never becomes markup.
function make(name, attrs, ...children) {
  const svg = name.startsWith("svg:");
  const e = svg ? document.createElementNS(SVG, name.slice(4)) : document.createElement(name);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v !== undefined && v !== null && v !== false) e.setAttribute(k, v === true ? "" : v);
  }
  for (const c of children.flat(Infinity)) if (c !== null && c !== undefined) e.append(c);
  return e;
}

const two = n => String(n).padStart(2, "0");
const many = (n, one, more) => `${count(n)} ${n === 1 ? one : more || one + "s"}`;
const count = n => (n || 0).toLocaleString("en-US");
const at = s => Date.parse(s) || 0;
const known = s => s && !s.startsWith("0001");

// leads tells whether a term was held when it was last seen. Only the newest term can be held now.
const leads = t => !!t && (t.state === "held" || t.state === "draining");
// ending is how a term before the newest has ended. Its last look may have been before its end.
const ending = t => leads(t) ? "its end was not seen" : t.reason || t.state || "";
// stale tells whether what is shown is old: the server is gone, or the store fails or is silent.
const silent = s => known(s.asked) && at(s.now) - at(s.asked) > s.silence_seconds * 1000;
const stale = s => page.lost || !!s.error || silent(s);

function clock(ms, withDay) {
  const d = new Date(ms);
  const day = `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} `;
  return (withDay ? day : "") + `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
function when(s) {
  if (!known(s)) return "–";
  const ms = at(s), far = Math.abs(Date.now() - ms) > 20 * 3600e3;
  return make("time", { datetime: s }, clock(ms, far));
}
function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}
// short leaves out the random part of a default identity: host/pid/uuid.
const short = h => { const p = (h || "").split("/"); return p.length === 3 && p[2].length === 36 ? `${p[0]}/${p[1]}` : h || "nobody"; };
const slot = p => p ? `${p.epoch}/${p.seq}` : "–";

function table(label, heads, rows, empty) {
  if (!rows.length) return make("p", { class: "none" }, empty);
  const cls = h => h.endsWith("#") ? "num" : h.endsWith("~") ? "wide" : null;
  const name = h => h.replace(/[#~]$/, "");
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label + ", table" },
    make("table", {},
      make("thead", {}, make("tr", {}, heads.map(h => make("th", { scope: "col", class: cls(h) === "num" ? "num" : null }, name(h))))),
      make("tbody", {}, rows.map(r => make("tr", {}, r.map((c, i) => make("td", { class: cls(heads[i]) }, c ?? "")))))));
}
function card(name, big, note, cls) {
  return make("div", { class: "card " + (cls || "") }, make("dt", {}, name), make("dd", { class: "big" }, big), make("dd", { class: "note" }, note || ""));
}
function section(title, ...inner) {
  const id = "s-" + title.toLowerCase().replace(/\W+/g, "-");
  return make("section", { "aria-labelledby": id }, make("div", { class: "head" }, make("h2", { id }, title)), inner);
}
const pill = (text, kind) => make("span", { class: "pill " + (kind || "") }, text);

function lane(names) {
  const all = new Map();
  for (const n of names) if (!all.has(n)) all.set(n, all.size);
  return all;
}

// inside is how wide a chart may be, in pixels, so that its text has the size of other text.
const inside = () => Math.max(260, document.getElementById("main").clientWidth - (innerWidth < 700 ? 28 : 34));

// terms draws who led when: a row for each holder, a hatched column where nobody led.
function terms(log, now) {
  const list = log.terms.filter(t => t.state).slice().reverse();
  if (!list.length) return make("p", { class: "none" }, "Nobody has led yet.");
  const sealed = "seals" in log; // where there is only a lock, nothing is
  const held = t => t === log.terms[0] && leads(t);
  const end = t => held(t) ? now : at(t.to);
  const first = at(list[0].from), seconds = spans[page.span];
  const to = now, from = seconds ? now - seconds * 1000 : Math.min(first, now - 60e3);
  const shown = list.filter(t => end(t) >= from);
  const rows = lane(shown.slice().reverse().map(t => short(t.holder)));
  const narrow = innerWidth < 700;
  const W = inside(), L = narrow ? 0 : 170, R = 14, H = narrow ? 46 : 34, T = 8;
  const names = [...rows.keys()].slice(0, 12);
  const height = T + names.length * H + 30;
  const x = ms => L + (Math.min(Math.max(ms, from), to) - from) / (to - from) * (W - L - R);
  const bottom = T + names.length * H;
  const chart = make("svg:svg", { class: "chart", viewBox: `0 0 ${W} ${height}`, role: "img", id: "terms" });
  const label = [`Leaders in the last ${seconds ? page.span : span((to - from) / 1000)}.`];
  for (let i = 0; i <= (narrow ? 3 : 6); i++) {
    const ms = from + (to - from) * i / (narrow ? 3 : 6), px = x(ms);
    chart.append(make("svg:line", { class: "axis", x1: px, x2: px, y1: T, y2: bottom }),
      make("svg:text", { x: px, y: bottom + 18, "text-anchor": i === 0 ? "start" : px > W - 60 ? "end" : "middle" },
        to - from > 40 * 3600e3 ? clock(ms, true).slice(5, 16) : to - from > 3 * 3600e3 ? clock(ms).slice(0, 5) : clock(ms)));
  }
  let last = null;
  for (const t of shown) {
    const a = at(t.from), b = end(t);
    const before = last || list[list.indexOf(t) - 1];
    if (before && a > end(before) && t.epoch > before.epoch) {
      const g = (a - end(before)) / 1000, x1 = x(end(before)), x2 = Math.max(x(a), x1 + 1.5);
      const gap = make("svg:rect", { class: "gap", x: x1, y: T, width: x2 - x1, height: bottom - T });
      gap.append(make("svg:title", {}, `nobody led for ${span(g)}`));
      chart.append(gap);
      if (x2 - x1 > 40) chart.append(make("svg:text", { class: "gaptext", x: (x1 + x2) / 2, y: T + 14, "text-anchor": "middle" }, span(g)));
      label.push(`Nobody for ${span(g)}.`);
    }
    label.push(`Epoch ${t.epoch}: ${short(t.holder)}, ${span((b - a) / 1000)}, ${held(t) ? "leads" : ending(t)}.`);
    last = t;
  }
  names.forEach((n, i) => chart.append(make("svg:text", { class: "name", x: narrow ? L : 0, y: T + i * H + (narrow ? 14 : H / 2 + 4) }, n.length > 24 && !narrow ? n.slice(0, 23) + "…" : n)));
  for (const t of shown) {
    const i = rows.get(short(t.holder));
    if (i >= names.length) continue;
    const x1 = x(at(t.from)), w = Math.max(x(end(t)) - x1, 3), y = T + i * H + (narrow ? 20 : 6), h = narrow ? 20 : H - 12;
    const bar = make("svg:rect", { class: "term f" + i % 8, x: x1, y, width: w, height: h, rx: 4, "data-epoch": t.epoch });
    bar.append(make("svg:title", {}, `epoch ${t.epoch}: ${t.holder}\n${clock(at(t.from), true)} to ${clock(end(t), true)}\n${held(t) ? t.state : ending(t)}`));
    chart.append(bar);
    if (w > 26) chart.append(make("svg:text", { class: "in", x: x1 + w / 2, y: y + h / 2 + 4, "text-anchor": "middle" }, String(t.epoch)));
    if (sealed && t.epoch > 1 && at(t.from) >= from) {
      const mark = make("svg:path", { class: "seal", d: `M${x1} ${y - 4}l5 5-5 5-5-5z` });
      const s = log.seals.find(s => s.next === t.epoch) || log.seals.filter(s => s.position.epoch < t.epoch).pop();
      mark.append(make("svg:title", {}, s ? `seal in slot ${slot(s.position)}` : "the log was sealed here"));
      chart.append(mark);
    }
  }
  chart.setAttribute("aria-label", label.slice(0, 25).join(" "));
  return [chart, make("ul", { class: "legend" },
    make("li", {}, icon("svg:rect", { class: "f0", width: 14, height: 14, rx: 3 }), "a term, with its epoch"),
    sealed ? make("li", {}, icon("svg:path", { class: "seal", d: "M7 1l6 6-6 6-6-6z" }), "the log before it is sealed") : null,
    make("li", {}, icon("svg:rect", { class: "gap", width: 14, height: 14 }), "nobody leads"))];
}
const icon = (name, attrs) => make("svg:svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, make(name, attrs));

// rate draws records a second from samples.
function rates(log) {
  const s = log.samples, points = [];
  for (let i = 1; i < s.length; i++) {
    const d = (at(s[i].at) - at(s[i - 1].at)) / 1000;
    if (d > 0) points.push([at(s[i].at), Math.max(0, s[i].records - s[i - 1].records) / d]);
  }
  return points;
}
const perSecond = v => v >= 100 ? count(Math.round(v)) : v >= 10 ? v.toFixed(0) : v > 0 ? v.toFixed(1) : "0";

function rateChart(log) {
  const points = rates(log);
  if (points.length < 2) return make("p", { class: "none" }, "The rate is shown after some minutes.");
  const W = innerWidth < 768 ? inside() : inside() / 2 - 24, H = 120, B = 22, top = Math.max(...points.map(p => p[1]), 1e-9);
  const a = points[0][0], z = points[points.length - 1][0];
  const x = ms => (ms - a) / (z - a) * W, y = v => H - B - v / top * (H - B - 18);
  const line = points.map((p, i) => `${i ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
  return make("svg:svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Records a second since ${clock(a)}: at most ${perSecond(top)}, now ${perSecond(points[points.length - 1][1])}.` },
    make("svg:path", { class: "area", d: `${line}L${W} ${H - B}L0 ${H - B}z` }), make("svg:path", { class: "rate", d: line }),
    make("svg:line", { class: "axis", x1: 0, x2: W, y1: H - B, y2: H - B }),
    make("svg:text", { x: 0, y: H - 6 }, clock(a)), make("svg:text", { x: W, y: H - 6, "text-anchor": "end" }, clock(z)),
    make("svg:text", { x: 0, y: 12 }, `${perSecond(top)} records/s`));
}

// extent draws how much of the log is given up, folded, and not folded.
function extent(log) {
  const m = log.manifest, end = Math.max(log.end, 1), pct = v => v / end * 100;
  const part = (from, to, cls) => to > from ? make("svg:rect", { class: cls, x: `${pct(from)}%`, width: `${Math.max(pct(to - from), .4)}%`, height: "100%" }) : null;
  const text = `Records ${count(m.first)} to ${count(m.floor_offset)} are in segments, ${count(m.floor_offset)} to ${count(log.end)} are not folded.`;
  return [make("div", { class: "bar" }, make("svg:svg", { role: "img", "aria-label": text },
    part(0, m.first, "fx"), part(m.first, m.floor_offset, "f4"), part(m.floor_offset, log.end, "f2"))),
  make("p", { class: "scale" }, make("span", {}, `first ${count(m.first)}`), make("span", {}, `floor ${slot(m.floor)}, record ${count(m.floor_offset)}`), make("span", {}, `${was(log, "tail") ? `tail ${slot(log.tail)}, ` : ""}record ${count(log.end)}`)),
  make("ul", { class: "legend" },
    make("li", {}, icon("svg:rect", { class: "f4", width: 14, height: 14, rx: 3 }), "folded into segments"),
    make("li", {}, icon("svg:rect", { class: "f2", width: 14, height: 14, rx: 3 }), "not folded yet"),
    m.first ? make("li", {}, icon("svg:rect", { class: "fx", width: 14, height: 14, rx: 3 }), "given up") : null)];
}

// was tells whether a part of a log, or the locks of a place without a log, was read. One that fails hides no other.
const was = (log, part) => log.read ? log.read[part] : log.complete;

function leader(log, now, old) {
  const t = log.terms[0];
  if (!t) return was(log, "leader") ? card("Leader", "nobody yet", "nobody has led so far", "lead") : card("Leader", "–", "not read yet", "lead");
  if (!t.state) return card("Leader", "–", `the lock of epoch ${t.epoch} was not read yet`, "lead");
  const state = { held: ["leads", "good"], draining: ["is leaving", "warn"], lapsed: ["lapsed", "bad"], expired: ["ended", "bad"] }[t.state] || ["?", ""];
  const why = t.reason ? ": " + t.reason : "";
  if (leads(t)) {
    return card("Leader", [short(t.holder), " ", old ? pill("led when last seen", "warn") : pill(...state)],
      `epoch ${t.epoch}, ${old ? "then " : ""}for ${span((now - at(t.from)) / 1000)}, ${count(t.renewals)} heartbeats`, "lead");
  }
  return card("Leader", [short(t.holder), " ", pill(...state)], old ? ["nobody led when last seen; ", `epoch ${t.epoch} ended `, when(t.to), why] :
    `nobody leads; epoch ${t.epoch} ended ${span((now - at(t.to)) / 1000)} ago${why}`, "lead");
}

// published says what the Delta table beside the log has of it.
function published(log) {
  const p = log.published;
  if (!p) return log.published_error ? card("Delta table", "–", `not read: ${log.published_error}`) : null;
  if (p.unpublished) return card("Delta table", "left", `version ${count(p.version)}; the log was taken out of it`);
  const behind = Math.max(0, log.manifest.edits - p.edits);
  return card("Delta table", [`version ${count(p.version)} `, behind ? pill(`${many(behind, "edit")} behind`, "warn") : pill("has all folded edits", "good")], [`${many(p.edits, "edit")}, the last of `, when(p.at)], "lead");
}

// fitting is the shortest span that shows all terms, up to a day.
function fitting(log, now) {
  const first = Math.min(now, ...log.terms.filter(t => t.state).map(t => at(t.from)));
  return Object.keys(spans).find(k => spans[k] && spans[k] * 1000 >= (now - first) * 1.05) || "1 d";
}

// leaders draws who led when, and lets the reader choose the time.
function leaders(log, now) {
  if (!page.span && log.terms.some(t => t.state)) page.span = fitting(log, now);
  const group = make("fieldset", {}, make("legend", { class: "quiet" }, "Time shown"));
  Object.keys(spans).forEach((name, i) => {
    const input = make("input", { type: "radio", name: "span", id: "span" + i, value: name });
    input.checked = name === page.span;
    input.addEventListener("change", () => { page.span = name; draw(); document.getElementById("span" + i).focus(); });
    group.append(input, make("label", { for: "span" + i }, name));
  });
  const chart = section("Leaders over time", terms(log, now));
  chart.firstChild.append(group);
  return chart;
}

// past lists the terms.
const past = (log, now, old) => section("Terms", table("Terms", ["Epoch#", "Holder~", "How it ended~", "Lasted#", "From", "Last seen"], log.terms.slice(0, 100).map((t, i) => [
  String(t.epoch), t.state ? make("span", { title: t.holder }, innerWidth < 700 ? short(t.holder) : t.holder) : "not read yet",
  i === 0 && leads(t) ? (old ? pill("led when last seen", "warn") : t.state === "held" ? pill("leads", "good") : pill("is leaving", "warn")) : t.state === "lapsed" ? pill("lapsed", "bad") : ending(t),
  t.state ? span(((i === 0 && leads(t) ? now : at(t.to)) - at(t.from)) / 1000) : "",
  when(t.from), when(t.to)]), empty(log, "leader", "Nobody has led yet.")));

// empty is what a table says that has no rows: as long as not all was looked at, there may be some.
const empty = (log, part, none) => was(log, part) ? none : "Not read yet.";

function compactor(log, old) {
  const c = log.compactor;
  if (!c || !c.epoch) return was(log, "compactor") ? card("Compactor", "none yet", "nobody folds this log", "lead") : card("Compactor", "–", "not read yet", "lead");
  const works = leads(c) ? (old ? pill("worked when last seen", "warn") : pill("works", "good")) : pill("stopped");
  return card("Compactor", [short(c.holder), " ", works], `epoch ${c.epoch}`, "lead");
}

function showLog(log, now, old) {
  const points = rates(log), m = log.manifests, left = log.unfolded || {}, counted = m.length && log.unfolded;
  return [
    make("dl", { class: "cards" },
      leader(log, now, old),
      card("Records", m.length ? count(log.end) : "–", !m.length ? "no checkpoint was read yet" : known(log.last_at) ? ["newest object ", when(log.last_at)] : ""),
      card("Rate", points.length ? `${perSecond(points[points.length - 1][1])}/s` : "–", "records, at the last checkpoint"),
      card("Not folded", !counted ? "–" : (left.more ? "≥ " : "") + count(left.objects), `${left.objects === 1 ? "object" : "objects"}, ${many(Math.max(0, log.end - log.manifest.floor_offset), "record")}`, "fill"),
      compactor(log, old),
      published(log)),
    leaders(log, now),
    make("div", { class: "pair" },
      section("The log", ...(was(log, "manifest") ? [extent(log), make("p", { class: "note" }, `${many(log.manifest.segments, "segment")}, ${many(log.manifest.files, "live file")}, ${many(log.manifest.seals, "folded seal")}.`)]
        : [make("p", { class: "none" }, "Not read yet.")])),
      section("Rate", rateChart(log))),
    past(log, now, old),
    inner(
      make("p", { class: "note" }, "A manifest lists what the log consists of: segments, seals, files. Each version replaces the one before. Floor: what is before this slot is folded. Noted: a new leader reads what comes after this slot."),
      section("Manifests", table("Manifests", ["Version#", "Written", "By", "Floor#", "Noted#", "Records#"], m.map(v => [
        count(v.version), when(v.written), v.by ? `${v.by}${v.epoch ? " " + v.epoch : ""}` : "not known", slot(v.floor), slot(v.noted), count(v.offset)]), empty(log, "manifest", "There is none yet."))),
      make("p", { class: "note" }, "A seal ends an epoch: its leader, if it wakes up, can write no more. Seals stay for ever."),
      section("Seals", table("Seals", ["Slot", "Opens epoch#", "Records before#"], log.seals.slice().reverse().slice(0, 100).map(v => [
        slot(v.position), v.folded ? String(v.next) : "–", v.folded ? count(v.offset) : "not folded"]), empty(log, "tail", "No epoch was sealed yet."))),
      make("p", { class: "note" }, "A pin keeps a version, with all that it names, until its holder lets it go."),
      section("Pins", table("Pins", ["Name", "Holder~", "Holds for", "Version#", "Made", "Renewed"], log.pins.map(p => [
      p.name || "–", p.holder || "not read yet", p.expired ? "expired" : p.ttl_seconds ? span(p.ttl_seconds) : "until removed", p.holder ? count(p.version) : "–", when(p.created), when(p.renewed)]), empty(log, "pins", "Nothing is pinned.")))),
  ];
}

// inner is what few readers need. It stays open when the page is drawn again.
function inner(...parts) {
  const d = make("details", { open: page.inner }, make("summary", {}, "Inside: manifests, seals and pins"), parts);
  d.addEventListener("toggle", () => { page.inner = d.open; });
  return d;
}

// lease is what the last look saw of it. A look comes every 20 s or so. A leader renews more often, so a
// lease that would have ended since then tells nothing.
function lease(t) {
  if (leads(t)) return card("Lease", span(t.validity_seconds), ["from each renewal on; the newest one seen was at ", when(t.to)]);
  if (t && t.state === "lapsed") return card("Lease", "was due", [`validity ${span(t.validity_seconds)}, not renewed since `, when(t.to)]);
  return card("Lease", "–", t && t.state ? "nobody leads" : "not read yet");
}

// showLock draws a place that has a lock and no log.
function showLock(lock, now, old) {
  return [
    make("dl", { class: "cards" },
      leader(lock, now, old),
      lease(lock.terms[0]),
      card("Log", "none", "there is only a lock, as with fencepost exec")),
    leaders(lock, now),
    past(lock, now, old),
  ];
}

// partitions draws a square for each, in the colour of its owner.
function partitions(g, name) {
  const cols = innerWidth < 700 ? 32 : 64, n = g.owners.length, rows = Math.ceil(n / cols), size = 10;
  if (!n) return make("p", { class: "none" }, "Nothing was assigned yet.");
  if (n > 20000) return make("p", { class: "none" }, "Too many to draw.");
  const tiles = make("svg:svg", { class: "tiles", viewBox: `0 0 ${cols * size} ${rows * size}`, role: "img", "aria-label": `${n} partitions, by owner: ` + (g.members.map(m => `${name(m.name)} ${m.owned}`).join(", ") || "nobody") });
  const paths = {}; // one path for each owner
  g.owners.forEach((o, p) => { const k = o < 0 ? "x" : o % 8; (paths[k] ||= []).push(`M${p % cols * size + 1} ${Math.floor(p / cols) * size + 1}h8v8h-8z`); });
  for (const [k, d] of Object.entries(paths)) tiles.append(make("svg:path", { class: "f" + k, d: d.join("") }));
  return tiles;
}

function showGroup(g, now, old) {
  const name = n => { const m = g.members.find(m => m.name === n); return m ? short(m.identity || m.name.slice(0, 8)) : n ? n.slice(0, 8) : "nobody"; };
  const works = old ? pill("worked when last seen", "warn") : pill("works", "good");
  const state = m => m.state === "expired" ? pill("expired", "bad") : m.state === "lapsed" ? m.owned ? pill("lapsed", "bad") : pill("gone") : m.state === "leaving" ? pill("leaving", "warn") : works.cloneNode(true);
  const moving = g.moving.length, given = g.given_up.length, most = Math.max(1, ...g.members.map(m => m.owned));
  return [
    make("dl", { class: "cards" },
      card("Group", g.name || "no name", `validity ${span(g.validity_seconds)}`),
      card("Members", count(g.members.length), `assignment ${count(g.assignment)}`),
      card("Partitions", count(g.partitions), `${count(g.owners.filter(o => o < 0).length)} without an owner`),
      card("Moving", moving ? [count(moving), " ", pill("moving", "warn")] : "0", "wait for the owner before"),
      card("Given up", given ? [count(given), " ", pill("work fails", "bad")] : "0", "partitions whose work fails", "fill")),
    section("Shares", table("Members", ["Member~", "State", "Owns#", "Weight#", "Share", "Data~"], g.members.map((m, i) => [
      [make("svg:svg", { class: "dot", viewBox: "0 0 12 12", "aria-hidden": "true" }, make("svg:rect", { class: "f" + i % 8, width: 12, height: 12, rx: 3 })), short(m.identity || m.name)], state(m), count(m.owned), count(m.weight),
      make("svg:svg", { width: 140, height: 12, "aria-hidden": "true" }, make("svg:rect", { class: "f" + i % 8, width: m.owned / most * 140, height: 12, rx: 3 })), m.data || ""]), "Nobody is a member.")),
    section("Partitions", make("p", { class: "note" }, "Each square is a partition, in the colour of its owner. Grey ones have none."), partitions(g, name)),
    section("Moves", table("Moves", ["Seen", "Partitions#", "From~", "To~", "Assignment#"], g.moves.map(m => [when(m.at), count(m.partitions), name(m.from), name(m.to), count(m.assignment)]), "None since this page's server was started.")),
  ];
}

function tabs() {
  const nav = document.getElementById("tabs");
  nav.hidden = page.states.length < 2;
  nav.replaceChildren(...page.states.map(s => {
    const b = make("button", { type: "button", "aria-current": s.url === page.url ? "true" : null }, s.url);
    b.addEventListener("click", () => { page.url = s.url; location.hash = s.url; draw(); document.querySelector("nav [aria-current]").focus(); });
    return b;
  }));
}

function status(s, now) {
  const p = document.getElementById("status");
  const age = s && known(s.asked) ? (now - at(s.asked)) / 1000 : -1;
  const bad = !s || stale(s);
  p.className = "status " + (bad ? "lost" : "ok");
  const text = page.lost ? "no connection to fencepost serve; retrying" : !s ? "connecting …" :
    age < 0 ? "waiting for the store" : `${s.error ? "the store failed; last answer" : silent(s) ? "the store is silent; last answer" : "store answered"} ${span(Math.round(age))} ago · ${count(s.requests)} requests`;
  if (p.textContent !== text) p.textContent = text;
}

const shows = { log: showLog, group: showGroup, lock: showLock };

// warnings are what is wrong with what follows them.
function warnings(s) {
  const seen = known(s.read) ? [" The page shows what was last seen, at ", when(s.read), "."] : "";
  const says = s.error || (page.lost ? "There is no connection to fencepost serve." : silent(s) ? "The store does not answer." : "");
  return says ? [make("p", { class: "alert", role: "alert" }, kind(s) ? [says.replace(/\.?$/, "."), seen] : says)] : [];
}
const kind = s => Object.keys(shows).find(k => s[k]);

// verdict says whether all is well, as far as the page sees, and otherwise what is not.
function verdict(s) {
  const bad = [], l = s.log || s.lock, g = s.group, lapsed = t => t && t.state === "lapsed";
  if (l && lapsed(l.terms[0])) bad.push("the leader has crashed, and nobody follows");
  if (s.log) {
    const wait = s.log.unfolded ? s.log.unfolded.objects : 0, c = s.log.compactor;
    if (lapsed(c)) bad.push("the compactor has crashed, and nobody follows");
    else if (wait > 2048) bad.push(`${many(wait, "object")} wait for a compactor`);
    else if (wait > 100 && was(s.log, "compactor") && !c.epoch && !s.log.manifest.compactor_epoch) bad.push("nobody compacts the log");
    if (s.log.published_error) bad.push("the Delta table cannot be read");
  }
  if (g) {
    const unowned = g.owners.filter(o => o < 0).length, gone = g.members.filter(m => m.state === "lapsed" && m.owned).length;
    if (unowned) bad.push(`${many(unowned, "partition")} without an owner`);
    if (g.given_up.length) bad.push(`the work fails on ${many(g.given_up.length, "partition")}`);
    if (gone) bad.push(`${many(gone, "member")} with partitions ${gone === 1 ? "has" : "have"} crashed`);
  }
  const all = g || (s.log ? s.log.complete : l.complete);
  const [text, cls] = bad.length ? ["not healthy", "bad"] : stale(s) ? ["not known", "warn"] : all ? ["healthy", "good"] : ["still reading", ""];
  const why = bad.length ? bad.join("; ") + "." : stale(s) ? "What is shown is old." : all ? "As far as this page sees; fencepost doctor checks more." : "Not all was read yet.";
  return make("p", { class: "verdict", id: "verdict" }, pill(text, cls), " ", why);
}

// content is all that the page shows of a state. What was last seen does not grow older: its time is when
// all that is shown was last read.
function content(s) {
  const old = stale(s), now = old && known(s.read) ? at(s.read) : Date.now() + page.skew, k = kind(s);
  if (!k) return s.error ? warnings(s) : [...warnings(s), make("p", {}, "Reading the store …")];
  return [...warnings(s), verdict(s), ...shows[k](s[k], now, old)];
}

// broken is shown in place of content that cannot be drawn. The other tabs still work.
function broken(s, e) {
  console.error(e);
  return [make("p", { class: "alert", role: "alert" }, `This page cannot draw ${s.url}: ${e}. Please report this, with what `, make("a", { href: "state.json" }, "state.json"), " has.")];
}

// announce tells who leads now, in the title and to screen readers.
function announce(s) {
  const t = (s.log || s.lock)?.terms[0];
  if (!t || !t.state) {
    document.title = "Fencepost";
    return;
  }
  const is = `${t.epoch} ${leads(t)}`, old = stale(s);
  if (page.seen[s.url] && page.seen[s.url] !== is) document.getElementById("news").textContent = leads(t) ? `${short(t.holder)} leads in epoch ${t.epoch}` : `nobody leads after epoch ${t.epoch}`;
  page.seen[s.url] = is;
  document.title = `${leads(t) ? short(t.holder) : "nobody"} ${old ? "led when last seen" : "leads"} · Fencepost`;
}

// draw makes the whole content before it changes the page, so that no page is half of one state and half
// of another. It keeps what the reader has scrolled to, and what has the focus.
function draw() {
  const s = page.states.find(s => s.url === page.url) || page.states[0];
  status(s, Date.now() + page.skew);
  if (!s) return;
  let shown;
  try {
    shown = content(s);
    announce(s);
  } catch (e) {
    shown = broken(s, e);
    document.title = "Fencepost";
  }
  page.url = s.url;
  tabs();
  const main = document.getElementById("main"), scrolled = {}, focus = document.activeElement;
  main.querySelectorAll(".scroll").forEach(e => { scrolled[e.getAttribute("aria-label")] = [e.scrollLeft, e.scrollTop]; });
  const label = focus && focus.getAttribute("aria-label"), id = focus && focus.id;
  main.replaceChildren(page.states.length > 1 ? make("h2", { class: "quiet" }, s.url) : make("p", { class: "where" }, s.url), ...shown);
  main.querySelectorAll(".scroll").forEach(e => {
    const was = scrolled[e.getAttribute("aria-label")];
    if (was) [e.scrollLeft, e.scrollTop] = was;
    if (label && e.getAttribute("aria-label") === label) e.focus({ preventScroll: true });
  });
  if (id && id.startsWith("span")) document.getElementById(id)?.focus({ preventScroll: true });
}

// lists are what each kind of state has. One without entries may be null.
const lists = { log: ["terms", "manifests", "seals", "pins", "samples"], group: ["members", "owners", "moving", "given_up", "moves"], lock: ["terms"] };

function show(text) {
  const states = JSON.parse(text);
  for (const s of states) for (const k of Object.keys(lists)) if (s[k]) for (const list of lists[k]) s[k][list] ||= [];
  page.states = states;
  if (page.states.length) page.skew = at(page.states[0].now) - Date.now();
  page.lost = false;
  page.heard = Date.now();
  draw();
}

function lost() {
  page.lost = true;
  draw();
}

// A browser opens six connections to a server. So of all tabs one follows the server, and passes on
// what it hears. Where tabs cannot agree on that, a tab follows while it is visible.
// Each place behind one host has tabs of its own: there may be another serve.
const place = "fencepost " + new URL(".", location.href).pathname;
const others = new BroadcastChannel(place);
others.onmessage = e => show(e.data);
let source = null;
function follow() {
  if (source || (!navigator.locks && document.hidden)) return;
  source = new EventSource("events");
  source.onmessage = e => { show(e.data); others.postMessage(e.data); };
  source.onerror = e => {
    lost();
    // The browser tries again by itself, but not after an answer such as a proxy's 502.
    if (e.target !== source || source.readyState !== EventSource.CLOSED) return;
    source = null;
    setTimeout(follow, 5000);
  };
}
fetch("state.json").then(r => r.ok ? r.text() : Promise.reject(r.status)).then(show).catch(lost);
if (navigator.locks) {
  navigator.locks.request(place, () => new Promise(follow));
} else {
  const visible = () => {
    if (!document.hidden) return follow();
    source?.close();
    source = null;
  };
  document.addEventListener("visibilitychange", visible);
  visible();
}
addEventListener("resize", () => draw());
setInterval(() => {
  if (!page.lost && page.heard && Date.now() - page.heard > 25e3 && !document.hidden) lost();
  const s = page.states.find(s => s.url === page.url);
  status(s, Date.now() + page.skew);
}, 1000);
