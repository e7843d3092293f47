"use strict";
// Draws one chart after another and says on the root element how far it got.
const root = document.documentElement;
const errors = [];
function failed(reason) {
  errors.push(String(reason));
  root.dataset.errors = errors.join("\n");
}
addEventListener("error", event => failed(event.message));
addEventListener("unhandledrejection", event => failed(event.reason));
addEventListener("securitypolicyviolation", event => failed("blocked: " + event.blockedURI));

const content = JSON.parse(document.getElementById("content").textContent);
const records = content.rows.map(row => {
  const record = Object.fromEntries(content.columns.map((column, i) => [column, row[i]]));
  record.position = record.layer + 1;
  record.run = content.names.run[record.run];
  record.layer = content.names.layer[record.layer];
  return record;
});
const logger = vega.logger(vega.Warn);
logger.warn = (...text) => { failed(text.join(" ")); return logger; };
logger.error = logger.warn;

async function draw() {
  root.dataset.charts = content.specs.length;
  root.dataset.drawn = 0;
  const options = {
    mode: "vega-lite", renderer: "svg", ast: true, config: content.config, logger,
    actions: {export: true, source: false, compiled: false, editor: false},
  };
  for (const [number, spec] of content.specs.entries()) {
    const place = document.querySelector(`#chart-${number} .chart`);
    try {
      await vegaEmbed(place, {...spec, datasets: {records}}, options);
      root.dataset.drawn = Number(root.dataset.drawn) + 1;
    } catch (error) {
      place.textContent = "This chart could not be drawn: " + error;
      failed(error);
    }
  }
}
draw();

// The filter keeps the rows that hold the text that was typed.
const table = document.querySelector("#all-records table");
if (table) {
  const field = document.getElementById("filter");
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of table.tBodies[0].rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    }
  });
}
