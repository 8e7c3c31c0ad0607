"use strict";
// The calculator of costs.md. It takes the dollars of the writer from the table on that page.

const Costs = {
  month: 730 * 3600, // seconds

  // table reads the cells of the table: the first row names the settings, the first column
  // has records a second.
  table(rows) {
    const number = (cell) => Number(cell.replace(/[,\s]/g, ""));
    return {
      settings: rows[0].slice(1),
      rates: rows.slice(1).map((row) => number(row[0])),
      dollars: rows.slice(1).map((row) => row.slice(1).map(number)),
    };
  },

  // writer is what the requests of one writer cost at the table's prices.
  writer(table, setting, rate) {
    const at = table.dollars.map((row) => row[setting]);
    const { rates } = table;
    if (!(rate > 0)) return 0;
    if (rate <= rates[0]) return (at[0] * rate) / rates[0];
    for (let i = 1; i < rates.length; i++) {
      if (rate <= rates[i]) {
        const part = Math.log(rate / rates[i - 1]) / Math.log(rates[i] / rates[i - 1]);
        return at[i - 1] * Math.pow(at[i] / at[i - 1], part);
      }
    }
    return at[at.length - 1];
  },

  // estimate returns rows of a name and dollars a month. Prices are for a million requests,
  // and for a GB and month.
  estimate(table, x) {
    const million = (perSecond, price) => (x.logs * perSecond * Costs.month * price) / 1e6;
    const appends = x.logs * Costs.writer(table, x.setting, x.rate) * (x.put / 5);
    const kept = (x.logs * x.rate * x.bytes * 86400 * x.days) / 1e9;
    return [
      ["appends and checkpoints", appends],
      ["heartbeats of the leaders", million(10 / 60, x.put)],
      ["waiting candidates", million((150 / 60) * x.candidates, x.get)],
      ["readers at the tail", million(x.readers, x.get) + million(x.readers / 300, x.put)],
      ["compaction, its GETs", x.put > 0 ? (appends * x.get) / x.put : 0],
      ["storage, not compressed", kept * x.gb],
    ];
  },
};

function calculator(place) {
  let heading = document.getElementById("dollars-a-month");
  while (heading && !heading.querySelector("table") && heading.tagName !== "TABLE") heading = heading.nextElementSibling;
  const found = heading.tagName === "TABLE" ? heading : heading.querySelector("table");
  const table = Costs.table([...found.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));

  const form = document.createElement("form");
  form.className = "costs";
  const fields = {};
  const group = (title, list) => {
    const set = document.createElement("fieldset");
    const legend = document.createElement("legend");
    legend.textContent = title;
    set.append(legend);
    for (const [name, text, value, options] of list) {
      const label = document.createElement("label");
      label.textContent = text;
      const field = document.createElement(options ? "select" : "input");
      if (options) {
        options.forEach((o, i) => field.add(new Option(o, i)));
      } else {
        Object.assign(field, { type: "number", min: 0, step: "any", value });
      }
      field.name = name;
      label.append(field);
      set.append(label);
      fields[name] = field;
    }
    form.append(set);
  };
  group("What you run", [
    ["logs", "Logs that are appended to", 1],
    ["rate", "Records a second, for each log", 50],
    ["setting", "Setting of the writer", 0, table.settings],
    ["candidates", "Waiting candidates, for each log", 1],
    ["readers", "Readers at the tail, for each log", 1],
    ["bytes", "Bytes of a record", 100],
    ["days", "Days that records are kept", 30],
  ]);
  group("Prices in dollars", [
    ["put", "A million PUTs or LISTs", 5],
    ["get", "A million GETs", 0.4],
    ["gb", "A GB for a month", 0.023],
  ]);
  const out = document.createElement("output");
  out.setAttribute("aria-live", "polite");
  form.append(out);

  const show = () => {
    const x = {};
    for (const [name, field] of Object.entries(fields)) x[name] = Math.max(0, Number(field.value) || 0);
    const rows = Costs.estimate(table, x);
    rows.push(["together", rows.reduce((sum, [, dollars]) => sum + dollars, 0)]);
    const result = document.createElement("table");
    const caption = document.createElement("caption");
    caption.textContent = "Dollars a month";
    result.append(caption);
    for (const [name, dollars] of rows) {
      const row = result.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      row.append(head);
      row.insertCell().textContent = dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
    }
    out.replaceChildren(result);
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (e) => e.preventDefault());
  show();
  place.replaceChildren(form);
}

if (typeof document === "undefined") {
  module.exports = Costs;
} else {
  const place = document.getElementById("cost-calculator");
  if (place) calculator(place);
}
