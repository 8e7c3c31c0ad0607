"use strict";
// The calculator, the table in costs.md and what was measured must agree: node --test internal/tools/site

const test = require("node:test");
const assert = require("node:assert");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

const Costs = require("../../../docs/assets/costs.js");
const read = (...path) => readFileSync(join(__dirname, "..", "..", "..", ...path), "utf8");

const page = read("docs", "costs.md");
const rows = page
  .slice(page.indexOf("## Dollars a month"))
  .split("\n\n")
  .find((part) => part.startsWith("|"))
  .split("\n")
  .filter((_, i) => i !== 1)
  .map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim().replaceAll("`", "")));
const table = Costs.table(rows);
const basis = { logs: 1, rate: 50, setting: 0, candidates: 0, readers: 0, bytes: 0, days: 0, put: 5, get: 0.4, gb: 0.023 };
const estimate = (x) => Object.fromEntries(Costs.estimate(table, { ...basis, ...x }));

test("the table is read", () => {
  assert.equal(table.settings.length, 4);
  assert.deepEqual(table.rates, [1, 5, 10, 50, 400, 5000]);
});

test("the calculator gives what the table says", () => {
  table.rates.forEach((rate, i) =>
    table.settings.forEach((_, setting) => {
      const got = estimate({ rate, setting })["appends and checkpoints"];
      assert.ok(Math.abs(got - table.dollars[i][setting]) < 0.01, `${rate} records, setting ${setting}: ${got}`);
    }),
  );
});

test("the table has what was measured", () => {
  const measured = [...read("bench", "results", "pacing.md").matchAll(/^\| ([\d,]+) records a second at random, S3's tail, (.*): dollars a month for requests \| ([\d.]+)/gm)];
  assert.equal(measured.length, table.rates.length * table.settings.length);
  for (const [, rate, name, dollars] of measured) {
    const row = table.rates.indexOf(Number(rate.replace(",", "")));
    const column = table.settings.indexOf(name.replace("100 ms", "100ms"));
    assert.equal(table.dollars[row]?.[column], Math.round(Number(dollars)), `${rate}, ${name}`);
  }
});

test("heartbeats cost what the page says", () => {
  const said = Number(page.match(/without heartbeats \(\$([\d.]+)\)/)[1]);
  assert.equal(estimate({ rate: 0 })["heartbeats of the leaders"].toFixed(2), said.toFixed(2));
});

test("between two rows it goes between their dollars", () => {
  for (const [setting] of table.settings.entries()) {
    for (let i = 1; i < table.rates.length; i++) {
      const at = Costs.writer(table, setting, Math.sqrt(table.rates[i - 1] * table.rates[i]));
      const ends = [table.dollars[i - 1][setting], table.dollars[i][setting]];
      assert.ok(at >= Math.min(...ends) - 1e-9 && at <= Math.max(...ends) + 1e-9, `${at} is not between ${ends}`);
    }
  }
});

test("nothing, more logs, other prices, storage", () => {
  assert.equal(estimate({ rate: 0 })["appends and checkpoints"], 0);
  assert.equal(estimate({ logs: 3 })["appends and checkpoints"], 3 * 584);
  assert.equal(estimate({ put: 10 })["appends and checkpoints"], 2 * 584);
  assert.equal(estimate({ rate: 1e9 })["appends and checkpoints"], 833);
  assert.ok(Object.values(estimate({ put: 0, get: 0 })).every((dollars) => dollars === 0));
  // 50 records a second, 100 bytes, 30 days: 12.96 GB.
  assert.ok(Math.abs(estimate({ bytes: 100, days: 30 })["storage, not compressed"] - 12.96 * 0.023) < 1e-9);
});
