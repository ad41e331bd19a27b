"use strict";
(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const colors = new Map();  // of the style sheet; asking the browser every time is slow
  function css(name) {
    if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
    return colors.get(name);
  }

  /** An element with attributes and children; texts become text, never markup. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== undefined && child !== null));
    return element;
  }

  const definitions = (pairs) =>
    pairs.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));

  // ---- numbers. NaN comes as null, infinities as "inf" and "-inf".

  const superscripts = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const superscript = (n) => String(n).replace(/./g, (c) => (c === "-" ? "⁻" : superscripts[Number(c)]));

  function numeric(value) {
    if (value === null || value === undefined) return NaN;
    if (value === "inf") return Infinity;
    if (value === "-inf") return -Infinity;
    return value;
  }

  function short(raw, digits = 3) {
    const value = numeric(raw);
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
    const minus = value < 0 ? "−" : "";
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size >= 1e5 || size < 1e-3) {
      if (size >= 1e5 && size < 1e15) {
        const power = Math.floor(Math.log10(size) / 3);
        return `${minus}${Number((size / 1000 ** power).toPrecision(digits))} ${"kMGT"[power - 1]}`;
      }
      const [mantissa, exponent] = size.toExponential(digits - 1).split("e");
      return `${minus}${Number(mantissa) === 1 ? "" : `${Number(mantissa)}·`}10${superscript(Number(exponent))}`;
    }
    return minus + String(Number(size.toPrecision(size >= 1000 ? 5 : digits)));
  }

  /** Names powers of ten; where the axis has few of them, also 2 and 5 times these. */
  function logTick(low, high, show) {
    const few = !(high / low > 150);
    return (value) => {
      const mantissa = Math.round(Number(value.toExponential(3).split("e")[0]) * 1000) / 1000;
      return mantissa === 1 || (few && (mantissa === 2 || mantissa === 5)) ? show(value) : "";
    };
  }

  const labelledLines = { color: (context) => (context.tick && context.tick.label ? css("--line") : "transparent") };

  const percent = (raw) => {
    const value = numeric(raw);
    return Number.isFinite(value) ? `${short(100 * value, 3)} %` : short(value);
  };
  const range = (low, high) => numeric(low) > numeric(high) ? "none" : `${short(low)} … ${short(high)}`;

  // ---- what is shown of a quantizer

  const ranked = report.ranked > 0;  // by what each quantizer does to the outputs; else by its channel error
  const metrics = [
    ranked && { key: "output_gain", name: "output gain", show: percent,
      help: `Share of the outputs' error that goes when this quantizer alone is switched off, on ${
        report.ranked} samples. Rows are ranked by it.` },
    ranked && { key: "output_alone", name: "output error alone", log: true,
      help: "Error of the outputs when this quantizer alone is switched on: Σ(y − y_float)² / Σ y_float²." },
    { key: "channel_error", name: "channel error", log: true,
      help: `Error relative to each channel's own size, as the root mean square over the channels.${
        ranked ? "" : " Rows are ranked by it."}` },
    { key: "local_error", name: "local error", log: true,
      help: "What this quantizer alone does to the float model's value r: ‖Q(r) − r‖ / ‖r‖." },
    { key: "cumulative_error", name: "cumulative error", log: true,
      help: "This value in the quantized run against the float run, with all that came before: ‖q − r‖ / ‖r‖." },
    { key: "mean_relative_error", name: "mean relative error", log: true,
      help: "Mean of |q − x| / |x|. Large where many values are close to zero." },
    { key: "sqnr_db", name: "SQNR, dB", low_is_bad: true,
      help: "Signal to quantization noise. Higher is better; 6 dB are worth one bit." },
    { key: "mse", name: "mean squared error", log: true, help: "Mean of (q − x)²." },
    { key: "max_abs", name: "largest error", log: true, help: "The largest |q − x|." },
    { key: "clipped", name: "clipped", log: true, show: percent,
      help: "Share of values beyond what the format can represent." },
    { key: "zeroed", name: "rounded to zero", log: true, show: percent,
      help: "Share of nonzero values that became zero." },
    { key: "kurtosis", name: "kurtosis", log: true,
      help: "3 for a normal distribution; large where few values are far out." },
    { key: "channel_imbalance", name: "channel imbalance", log: true,
      help: "Largest |x| of any channel over that of the median channel. Where it is large, one scale suits few." },
  ].filter(Boolean);
  const columns = [
    { key: "layer", name: "layer", text: true },
    { key: "slot", name: "slot", text: true },
    ranked ? { key: "output_gain", name: "output gain", show: percent, meter: "linear" }
      : { key: "channel_error", name: "channel error", meter: "log" },
    { key: "reading", name: "reading", text: true },
    { key: "format", name: "format", text: true },
    ranked && { key: "channel_error", name: "channel error", meter: "log" },
    { key: "local_error", name: "local error" },
    { key: "cumulative_error", name: "cumulative error" },
    { key: "mean_relative_error", name: "mean relative error" },
    { key: "sqnr_db", name: "SQNR, dB" },
    { key: "clipped", name: "clipped", show: percent },
    { key: "zeroed", name: "rounded to zero", show: percent },
    { key: "kurtosis", name: "kurtosis" },
    { key: "channel_imbalance", name: "channel imbalance" },
    { key: "outlier_channels", name: "outlier channels" },
    { key: "bias_shift", name: "bias shift" },
    { key: "max_abs", name: "largest error" },
    { key: "mse", name: "mean squared error" },
    { key: "cosine", name: "cosine", show: (value) => short(value, 6) },
  ].filter(Boolean);
  const slots = ["weight", "input", "output", "bias"];
  const slotColor = { weight: "--float", input: "--quantized", output: "--arrives", bias: "--muted" };

  const rowsOf = (of) => of.rows.map((row, rank) => ({ ...row, rank, q: of.quantizers[row.quantizer] }));
  const rows = rowsOf(report);
  const broken = (row) => row.q.non_finite > 0;
  const layersOf = report.quantizers.map(() => new Set());  // that each quantizer serves
  for (const row of rows) layersOf[row.quantizer].add(row.layer);
  const valueOf = (row, key) => (key in row ? row[key] : row.q[key]);

  // ---- heading

  /** The numbers of the whole model: name and text, those of its worst output. */
  function modelFacts(of) {
    const worst = of.outputs.filter((output) => output.sqnr_db !== null)
      .sort((a, b) => numeric(a.sqnr_db) - numeric(b.sqnr_db))[0];
    const facts = [];
    if (worst) facts.push([of.outputs.length > 1 ? `SQNR of output ${worst.name}` : "output SQNR", `${short(worst.sqnr_db)} dB`]);
    const agreements = of.outputs.map((output) => output.agreement).filter((share) => share !== null);
    if (agreements.length > 0) facts.push(["agreement", percent(Math.min(...agreements))]);
    const labelled = of.outputs.find((output) => output.top1 !== null);
    if (labelled) facts.push(["top1", `${percent(labelled.top1)}, float ${percent(labelled.float_top1)}`]);
    return facts;
  }

  function showModel() {
    const other = new Map(beside ? modelFacts(beside.report) : []);
    byId("model-numbers").replaceChildren(...modelFacts(report).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, value),
        other.has(name) ? make("dd", { class: "other" }, `${beside.name}: ${other.get(name)}`) : null)));
    byId("model-numbers").hidden = report.outputs.length === 0;
    byId("outputs").hidden = report.outputs.length < 2;
    const cell = (value, show) => make("td", {}, value === null ? "–" : show(value));
    byId("outputs").lastElementChild.replaceChildren(
      make("thead", {}, make("tr", {}, ...["output", "SQNR, dB", "cosine", "agreement"].map((name, i) =>
        make("th", { scope: "col", class: i === 0 ? "text" : undefined }, name)))),
      make("tbody", {}, ...report.outputs.map((output) => make("tr", {}, make("td", { class: "text" }, output.name),
        cell(output.sqnr_db, short), cell(output.cosine, (value) => short(value, 6)), cell(output.agreement, percent)))));
    byId("outputs").firstElementChild.textContent = `${report.outputs.length} outputs`;
  }

  function showSummary() {
    byId("model").textContent = report.model || "the model";
    document.title = `Kaon: ${report.model || "model"}, ${report.scheme}`;
    showModel();
    const worst = rows[0];
    const facts = [
      ["scheme", report.scheme || "–"],
      ["samples", short(report.samples)],
      ["layers", short(report.layers)],
      ["parameters", short(report.parameters)],
      ["quantizers", String(report.quantizers.length)],
      ["values observed", short(report.observed)],
    ];
    if (worst) facts.push(["worst", `${worst.layer} · ${worst.slot}`]);
    byId("summary").append(...definitions(facts));
    if (report.nan) {
      const at = report.nan;
      const place = at.batch < 0 ? "the constant" : `batch ${at.batch}, element [${at.element.join(", ")}] of`;
      byId("alert").hidden = false;
      byId("alert").append(make("strong", {}, `${short(at.value)} in ${at.layer} · ${at.slot}. `),
        `First seen in ${place} ${at.tensor}, in the ${at.float_run ? "float model already" : "quantized run"}.`);
    }
    if (report.skipped.length > 0) {
      const box = byId("skipped");
      box.hidden = false;
      box.firstElementChild.textContent = `${report.skipped.length} not quantized`;
      box.lastElementChild.append(...report.skipped.map((s) => make("li", {}, `${s.layer}: ${s.reason}`)));
    }
  }

  // ---- another report beside this one

  let beside = null;  // { report, name, rows }

  /** Rows of two reports of one model belong together where layer and slot are the same, in the model's order. */
  function keyed(list) {
    const times = new Map();
    const keys = new Map();
    for (const row of [...list].sort((a, b) => a.order - b.order)) {
      const key = JSON.stringify([row.layer, row.slot]);
      times.set(key, (times.get(key) || 0) + 1);
      keys.set(row, `${key}${times.get(key)}`);
    }
    return keys;
  }

  /** The row of the other report for one of this, or undefined. */
  const twin = (row) => beside?.rows.get(beside.keys.get(row));

  function putBeside(text) {
    const data = /<script id="data" type="application\/json">([^<]*)<\/script>/.exec(text);
    if (!data) return "This is no report.html of kaon debug.";
    const other = JSON.parse(data[1]);
    if (!other.outputs) return "This report is of an older Kaon: debug the model again.";
    const theirs = new Map();
    for (const [row, key] of keyed(rowsOf(other))) theirs.set(key, row);
    const keys = keyed(rows);
    const common = rows.filter((row) => theirs.has(keys.get(row))).length;
    if (common === 0) return `${other.model} has no layer of this model.`;
    const name = other.scheme === report.scheme ? `${other.scheme}, other` : other.scheme;
    beside = { report: other, name, rows: theirs, keys };
    document.body.classList.add("two");
    showModel();
    fillTable();
    drawOverview();
    drawDetail();
    return `${name}: ${common} of ${rows.length} slots in common`;
  }

  function askForOther() {
    byId("beside").addEventListener("change", async () => {
      const [file] = byId("beside").files;
      if (file) byId("beside-note").textContent = putBeside(await file.text());
    });
  }

  // ---- bars over all layers

  let selected;
  let overview = null;
  let overviewRows = [];

  function fillChoices() {
    byId("metric").append(...metrics.map((m) => make("option", { value: m.key }, m.name)));
    const present = slots.filter((slot) => rows.some((row) => row.slot === slot));
    byId("slot").append(make("option", { value: "" }, "everything"),
      ...present.map((slot) => make("option", { value: slot }, slot === "bias" ? "biases" : `${slot}s`)));
    for (const id of ["metric", "slot", "order"]) byId(id).addEventListener("change", drawOverview);
  }

  /** Sorts the worst first: what is no number, then from bad to good. */
  function byBadness(metric) {
    const bad = (row) => {
      const value = numeric(row.q[metric.key]);
      if (broken(row) || Number.isNaN(value)) return Infinity;
      return metric.low_is_bad ? -value : value;
    };
    return (a, b) => (bad(a) === bad(b) ? a.rank - b.rank : bad(a) < bad(b) ? 1 : -1);
  }

  function barColors(slot) {
    return overviewRows.map((row) => css(selected && layersOf[row.quantizer].has(selected.layer) ? "--bad" : slotColor[slot]));
  }

  /** A quantizer that serves several layers is one bar. */
  function onceEach(list) {
    const seen = new Set();
    return list.filter((row) => !seen.has(row.quantizer) && seen.add(row.quantizer));
  }

  function drawOverview() {
    const metric = metrics.find((m) => m.key === byId("metric").value) || metrics[0];
    const show = metric.show || short;
    const slot = byId("slot").value;
    overviewRows = onceEach(rows.filter((row) => slot === "" || row.slot === slot));
    overviewRows.sort(byId("order").value === "model" ? (a, b) => a.order - b.order : byBadness(metric));
    byId("metric-help").textContent = `${metric.help} Click a bar to see its layer.`;
    byId("overview").setAttribute("aria-label",
      `${metric.name} of ${overviewRows.length} quantizers; the table below holds the numbers.`);
    const values = overviewRows.map((row) => numeric(row.q[metric.key]));
    const drawable = (value) => Number.isFinite(value) && (!metric.log || value > 0);
    const others = overviewRows.map((row) => numeric(twin(row)?.q[metric.key]));
    const finite = [...values, ...others].filter(drawable);
    // The smallest bar must be seen, too; and no more than ten decades.
    const lowest = metric.log && finite.length > 0
      ? 10 ** Math.floor(Math.log10(Math.max(Math.min(...finite) * 0.7, Math.max(...finite) * 1e-10))) : undefined;
    // Names lean as far as they must: level where each has its width, else steep and a line's height apart.
    const room = byId("overview").parentNode.clientWidth / Math.max(1, overviewRows.length);
    const few = room >= 20;
    const kinds = new Set(overviewRows.map((row) => row.slot)).size;
    const level = room >= 7 * Math.max(...overviewRows.map((row) => row.layer.length + row.slot.length + 3));
    const highest = finite.reduce((a, b) => Math.max(a, b), 0) || 1;
    const heightOf = (row, value) => (drawable(value) ? value : broken(row) ? highest : null);
    byId("overview").parentNode.classList.toggle("tall", few && !level);
    overview?.destroy();
    overview = new Chart(byId("overview"), {
      type: "bar",
      data: {
        labels: overviewRows.map((row) => `${row.layer} · ${row.slot}`),
        datasets: [...slots.filter((name) => overviewRows.some((row) => row.slot === name)).map((name) => ({
          label: name,
          data: overviewRows.map((row, i) => (row.slot === name ? heightOf(row, values[i]) : null)),
          backgroundColor: barColors(name),
          grouped: false, barPercentage: 1, categoryPercentage: few ? 0.8 : 0.95, minBarLength: 2,
        })), ...(beside ? [{
          label: beside.name, type: "line", other: true, showLine: false, order: -1,
          data: others.map((value) => (drawable(value) ? value : null)),
          pointRadius: few ? 5 : 2, pointStyle: "rectRot", pointBackgroundColor: css("--card"),
          pointBorderColor: css("--ink"), pointBorderWidth: few ? 2 : 1,
        }] : [])],
      },
      options: {
        animation: false, maintainAspectRatio: false,
        interaction: { mode: "index", intersect: false },
        onClick: (event) => {
          const hit = overview.getElementsAtEventForMode(event, "index", { intersect: false }, false)[0];
          if (hit) select(overviewRows[hit.index]);
        },
        scales: {
          x: { grid: { display: false },
            ticks: { display: few, autoSkip: false, minRotation: level ? 0 : 60, maxRotation: 60, callback: function (value) {
              const label = kinds > 1 ? this.getLabelForValue(value) : overviewRows[value].layer;
              return label.length > 28 ? `…${label.slice(-27)}` : label;
            } },
            title: { display: !few, text: `${overviewRows.length} quantizers, ${
              byId("order").value === "model" ? "first to last of the model" : "worst to best"}` } },
          y: { type: metric.log ? "logarithmic" : "linear", min: lowest,
            title: { display: true, text: metric.name + (metric.log ? ", log scale" : "") },
            grid: labelledLines, ticks: metric.log ? { autoSkip: false, callback: logTick(lowest, highest, show) }
              : { maxTicksLimit: 8, callback: (value) => show(value) } },
        },
        plugins: {
          legend: { position: "top", align: "end", onClick: () => {}, labels: { boxWidth: 12, boxHeight: 12,
            generateLabels: (chart) => [...chart.data.datasets.map((set) =>
              [set.label, set.other ? "--ink" : slotColor[set.label]]),
              ["the layer shown below", "--bad"]].map(([text, color]) =>
              ({ text, lineWidth: 0, fillStyle: css(color), fontColor: css("--muted") })) } },
          tooltip: { filter: (item) => item.raw !== null,
            callbacks: { label: (item) => {
              const row = overviewRows[item.dataIndex];
              if (item.dataset.other) return `${beside.name}: ${show(twin(row).q[metric.key])}`;
              return `${metric.name}: ${show(row.q[metric.key])}${broken(row) ? ", and NaN or Inf" : ""}`;
            } } },
        },
      },
    });
  }

  // ---- the table

  let sorted = { key: ranked ? "output_gain" : "channel_error", descending: true };
  const body = byId("table").tBodies[0];
  const ordered = [...rows];
  let found = [];

  /** What share of a cell its bar fills, for values of a column. */
  function meterOf(column) {
    const values = rows.map((row) => numeric(row.q[column.key])).filter((v) => Number.isFinite(v) && v > 0);
    const high = values.reduce((a, b) => Math.max(a, b), 0);
    if (column.meter === "linear") return (value) => value / high;
    const low = Math.log(values.reduce((a, b) => Math.min(a, b), Infinity)) - 0.3;
    return (value) => (Math.log(value) - low) / (Math.log(high) - low);
  }

  function makeCell(row, column, meter) {
    const value = valueOf(row, column.key);
    if (column.key === "layer") {
      return make("td", { class: "text" }, make("button", { type: "button", title: row.layer }, row.layer));
    }
    const cell = make("td", { class: column.key === "reading" ? "text words" : column.text ? "text" : undefined },
      column.text ? value : (column.show || short)(value));
    if (!column.text && !Number.isFinite(numeric(value)) && column.key !== "sqnr_db") cell.classList.add("bad");
    if (meter && broken(row)) {
      cell.classList.add("bad");
      cell.textContent = "NaN or Inf";
    }
    if (meter && numeric(value) > 0) {
      cell.classList.add("meter");
      cell.style.setProperty("--share", `${(100 * Math.min(1, Math.max(0, meter(numeric(value))))).toFixed(1)}%`);
    }
    if (beside && column.key in row.q && !column.text) {
      const there = twin(row)?.q[column.key];
      cell.append(make("div", { class: "other" }, there === undefined ? "–" : (column.show || short)(there)));
    }
    return cell;
  }

  function fillTable() {
    const head = byId("table").tHead.rows[0];
    head.replaceChildren();
    for (const column of columns) {
      const button = make("button", { type: "button" }, column.name);
      button.addEventListener("click", () => sortBy(column));
      const kind = column.text ? "text" : undefined;
      head.append(make("th", { scope: "col", class: kind, "data-key": column.key }, button));
    }
    const meters = columns.map((column) => (column.meter ? meterOf(column) : null));
    for (const row of rows) {
      row.element = make("tr", { class: row.layer === selected?.layer ? "selected" : undefined },
        ...columns.map((column, i) => makeCell(row, column, meters[i])));
      row.element.addEventListener("click", () => select(row));
      row.element.row = row;
    }
    markSorted();
    showRows();
  }

  function useTable() {
    const scroll = body.closest(".scroll");
    scroll.addEventListener("scroll", () => {
      if (scroll.scrollTop + 2 * scroll.clientHeight > scroll.scrollHeight) attachRows();
    });
    body.addEventListener("keydown", (event) => {
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      if (!step) return;
      const current = event.target.closest("tr");
      if (current === body.lastElementChild) attachRows();
      const next = current[step];
      if (!next) return;
      event.preventDefault();
      next.querySelector("button").focus();
      select(next.row);
    });
    byId("filter").addEventListener("input", showRows);
  }

  function sortBy(column) {
    const descending = sorted.key === column.key ? !sorted.descending : !column.text;
    sorted = { key: column.key, descending };
    const key = (row) => {
      const value = valueOf(row, column.key);
      if (column.text) return value;
      if (column.meter && broken(row)) return Infinity;
      return Number.isNaN(numeric(value)) ? Infinity : numeric(value);
    };
    const compare = column.text
      ? (a, b) => key(a).localeCompare(key(b), "en", { numeric: true })
      : (a, b) => (key(a) === key(b) ? 0 : key(a) < key(b) ? -1 : 1);
    ordered.sort((a, b) => (descending ? -1 : 1) * compare(a, b) || a.rank - b.rank);
    markSorted();
    showRows();
  }

  function markSorted() {
    for (const th of byId("table").tHead.rows[0].cells) {
      if (th.dataset.key === sorted.key) th.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
  }

  function showRows() {
    const wanted = byId("filter").value.toLowerCase();
    found = ordered.filter((row) => row.layer.toLowerCase().includes(wanted));
    body.replaceChildren();
    attachRows();
    const all = found.length === rows.length;
    byId("shown").textContent = all ? `${rows.length} slots` : `${found.length} of ${rows.length} slots`;
  }

  /** The next rows join the table when one scrolls near its end: laying out all at once takes long. */
  function attachRows() {
    const from = body.rows.length;
    body.append(...found.slice(from, from + 100).map((row) => row.element));
  }

  // ---- one layer

  let detailCharts = [];

  function select(row) {
    if (selected === row) return;
    selected = row;
    for (const set of overview.data.datasets.filter((one) => !one.other)) set.backgroundColor = barColors(set.label);
    overview.update("none");
    showSelected();
  }

  function showSelected() {
    for (const row of rows) row.element.classList.toggle("selected", row.layer === selected.layer);
    drawDetail();
  }

  function drawDetail() {
    for (const chart of detailCharts) chart.destroy();
    detailCharts = [];
    const detail = byId("detail");
    detail.replaceChildren(make("h2", {}, selected.layer), make("p", { class: "help" },
      selected.op ? `operator ${selected.op}` : "not a layer, but its values are quantized"));
    const own = rows.filter((row) => row.layer === selected.layer);
    own.sort((a, b) => (b === selected) - (a === selected) || slots.indexOf(a.slot) - slots.indexOf(b.slot));
    for (const row of own) {
      const there = twin(row);
      detail.append(there
        ? make("div", { class: "pair" }, slotPart(row, report.scheme), slotPart(there, beside.name)) : slotPart(row));
    }
    // Drawn once they are in the page and have a size.
    for (const canvas of detail.querySelectorAll("canvas")) detailCharts.push(new Chart(canvas, canvas.chart));
  }

  function slotPart(row, scheme) {
    const q = row.q;
    const activation = q.kind === "input" || q.kind === "output";
    const of = scheme ? `, ${scheme}` : "";
    const part = make("section", { class: "slot" }, make("h3", {}, `${row.slot}: ${q.format}${of}`),
      make("p", { class: "help" }, q.description));
    if (q.reading) part.append(make("p", { class: "reading" }, q.reading));
    const facts = [
      ["tensor", q.tensor], ["shape", q.shape.join(" × ") || "one value"], ["values", short(q.count)],
      ["range", range(q.min, q.max)],
      q.representable && ["representable", range(...q.representable)],
      q.scale !== undefined && ["scale", short(q.scale, 4)],
      q.scales && [`${q.scales.count} scales`, range(q.scales.low, q.scales.high)],
      q.zero_point !== undefined && ["zero point", short(q.zero_point)],
      q.output_gain !== null && ["output gain", percent(q.output_gain)],
      q.output_alone !== null && ["output error alone", short(q.output_alone)],
      ["channel error", short(q.channel_error)], ["local error", short(q.local_error)],
      ["cumulative error", short(q.cumulative_error)],
      ...(activation && numeric(q.cumulative_error) > 0 ? [["made here", percent(q.own_share)],
        ["by the layer's weight", percent(q.weight_share)], ["brought in", percent(q.inherited_share)]] : []),
      ["SQNR", `${short(q.sqnr_db)} dB`], ["cosine", short(q.cosine, 6)],
      ["clipped", percent(q.clipped)], ["rounded to zero", percent(q.zeroed)],
      numeric(q.mse) > 0 && ["error by clipping", percent(numeric(q.clip_error) / numeric(q.mse))],
      ["largest error", short(q.max_abs)], ["bias shift", short(q.bias_shift)], ["kurtosis", short(q.kurtosis)],
      q.channels && ["channel imbalance", short(q.channel_imbalance)],
      q.channels && ["outlier channels", `${q.outlier_channels} of ${q.channels.count}`],
      q.non_finite > 0 && ["NaN or Inf", short(q.non_finite)],
    ].filter(Boolean);
    part.append(make("dl", { class: "facts" },
      ...definitions(facts)));
    const histogram = histogramChart(row);
    if (histogram) {
      part.append(chartBox(histogram, `${row.layer} ${row.slot}: histogram of float and quantized values`));
    } else {
      part.append(make("p", { class: "help" },
        q.count > 0 ? "No histogram was collected for this value: --act-hist does." : "No finite value was seen."));
    }
    const channels = channelChart(q);
    if (channels) part.append(chartBox(channels, `${row.layer} ${row.slot}: range of every channel`, "low"));
    return part;
  }

  function chartBox(config, label, kind = "") {
    const canvas = make("canvas", { role: "img", "aria-label": label });
    canvas.chart = config;
    return make("div", { class: `chart ${kind}` }, canvas);
  }

  function histogramChart(row) {
    const q = row.q;
    const float = q.reference || q.input;
    const series = [
      float && { data: float, label: q.reference ? "float run" : "float", color: "--float", fill: true },
      q.output && { data: q.output, label: "quantized", color: "--quantized" },
      q.reference && q.input && { data: q.input, label: "before this quantizer", color: "--arrives", hidden: true },
    ].filter(Boolean);
    if (series.length === 0) return null;
    const unit = series[0].data.width;
    let heights = [];
    for (const one of series) {
      one.heights = one.data.counts.map((count) => numeric(count) * (unit / one.data.width));
      heights = heights.concat(one.heights.filter((height) => height > 0));
    }
    heights.sort((a, b) => a - b);
    const top = heights[heights.length - 1];
    const log = top > 50 * heights[heights.length >> 1];
    const floor = log ? heights[0] / 2 : 0;
    const ceiling = log ? top * 2 : top * 1.05;
    let low = Infinity;
    let high = -Infinity;
    const datasets = series.map((one) => {
      const { start, width } = one.data;
      const points = one.heights.map((height, i) => ({ x: start + i * width, y: Math.max(height, floor) }));
      points.unshift({ x: start, y: floor });
      points.push({ x: start + one.heights.length * width, y: Math.max(one.heights[one.heights.length - 1], floor) });
      points.push({ x: start + one.heights.length * width, y: floor });
      low = Math.min(low, start);
      high = Math.max(high, points[points.length - 1].x);
      return { label: one.label, data: points, borderColor: css(one.color), borderWidth: one.fill ? 1 : 1.5,
        backgroundColor: `${css(one.color)}66`, fill: one.fill ? "start" : false, stepped: true, pointRadius: 0,
        pointHitRadius: 6, hidden: one.hidden };
    });
    const marks = (label, ends, color, dash) => datasets.push({
      label, borderColor: css(color), borderWidth: 1.5, borderDash: dash, pointRadius: 0, fill: false, mark: true,
      data: ends.map(numeric).flatMap((x) => [{ x, y: floor }, { x, y: ceiling }, { x, y: NaN }]),
    });
    const reach = 0.6 * (high - low);
    if (q.count > 0) marks(`data ${range(q.min, q.max)}`, [q.min, q.max], "--muted", [2, 3]);
    if (q.representable) {
      const near = q.representable.map(numeric).filter((x) => x > low - reach && x < high + reach);
      const where = near.length === 0 ? ", outside this view" : "";
      marks(`representable ${range(...q.representable)}${where}`, near, "--clip", [6, 4]);
      for (const x of near) {
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
    }
    // The bin of a constant is as narrow as floats are close: zoom out until numbers can be read.
    const margin = high - low < 2e-5 * Math.max(Math.abs(low), Math.abs(high))
      ? 0.02 * Math.max(Math.abs(low), Math.abs(high)) : 0.02 * (high - low);
    return {
      type: "line",
      data: { datasets },
      options: {
        animation: false, maintainAspectRatio: false, parsing: false,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: { type: "linear", min: low - margin, max: high + margin, title: { display: true, text: "value" },
            ticks: { maxTicksLimit: 8, includeBounds: false,
              callback: (value) => short(Number(value.toPrecision(6))) } },
          y: { type: log ? "logarithmic" : "linear", min: floor, max: ceiling,
            title: { display: true, text: `count per ${short(unit, 2)}${log ? ", log" : ""}` },
            grid: labelledLines,
            ticks: log ? { autoSkip: false, includeBounds: false, callback: logTick(floor, ceiling, short) }
              : { maxTicksLimit: 6, includeBounds: false, callback: (value) => short(value) } },
        },
        plugins: {
          legend: { position: "top", align: "start", labels: { boxWidth: 14, boxHeight: 2 } },
          tooltip: { filter: (item) => !item.dataset.mark,
            callbacks: { title: (items) => (items.length > 0 ? `from ${short(items[0].parsed.x)}` : ""),
              label: (item) => `${item.dataset.label}: ${short(item.parsed.y)}` } },
        },
      },
    };
  }

  function channelChart(q) {
    const channels = q.channels;
    if (!channels) return null;
    const name = (i) => {
      const first = i * channels.group;
      const last = Math.min(first + channels.group, channels.count) - 1;
      return first === last ? String(first) : `${first}–${last}`;
    };
    return {
      type: "bar",
      data: {
        labels: channels.low.map((_, i) => name(i)),
        datasets: [
          { type: "line", label: "mean of |x|", data: channels.mean.map(numeric), borderColor: css("--quantized"),
            borderWidth: 1.5, pointRadius: 0 },
          { label: "min to max", data: channels.low.map((low, i) => [numeric(low), numeric(channels.high[i])]),
            backgroundColor: `${css("--float")}99`, barPercentage: 1, categoryPercentage: 0.9, minBarLength: 1 },
        ],
      },
      options: {
        animation: false, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
        scales: {
          x: { grid: { display: false }, ticks: { maxTicksLimit: 12, maxRotation: 0 }, title: { display: true,
            text: channels.group > 1 ? `channel (${channels.count} in groups of ${channels.group})` : "channel" } },
          y: { title: { display: true, text: "value" },
            ticks: { maxTicksLimit: 5, callback: (value) => short(value) } },
        },
        plugins: {
          legend: { position: "top", align: "start", labels: { boxWidth: 12, boxHeight: 6 } },
          tooltip: { callbacks: { title: (items) => `channel ${items[0].label}`, label: (item) =>
            Array.isArray(item.raw) ? `${range(...item.raw)}` : `mean of |x|: ${short(item.raw)}` } },
        },
      },
    };
  }

  // ---- all together

  function dress() {
    colors.clear();
    Chart.defaults.color = css("--muted");
    Chart.defaults.borderColor = css("--line");
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  }

  dress();
  showSummary();
  fillChoices();
  useTable();
  askForOther();
  selected = rows[0];
  fillTable();
  drawOverview();
  if (selected) showSelected();
  else byId("detail").append(make("p", { class: "help" }, "There is no quantizer in this report."));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    dress();
    drawOverview();
    if (selected) drawDetail();
  });
})();
