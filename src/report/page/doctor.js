"use strict";
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const report = page.diagnosis;
  const byId = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** An element with attributes and children; texts become text, never markup. */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== undefined && child !== null));
    return element;
  }

  function short(value, digits = 4) {
    if (value === null || value === undefined || value === "inf") return "∞";
    if (value === "-inf") return "−∞";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(digits)));
  }
  const percent = (value) => `${short(100 * value, 3)} %`;
  function bytes(value) {
    if (value < 1024) return `${value} B`;
    return value < 1024 * 1024 ? `${short(value / 1024, 3)} KiB` : `${short(value / 1024 / 1024, 4)} MiB`;
  }

  function table(id, columns, rows, rowClass = () => undefined) {
    byId(id).tHead.replaceChildren(make("tr", {}, ...columns.map(([name, , kind]) =>
      make("th", { scope: "col", class: kind ? "text" : undefined }, make("button", { type: "button", disabled: true }, name)))));
    byId(id).tBodies[0].replaceChildren(...rows.map((row) => make("tr", { class: rowClass(row) },
      ...columns.map(([, show, kind]) => make("td", { class: kind }, show(row))))));
  }

  // ---- the verdict

  const words = {
    healthy: "Healthy", cured: "Cured", improved: "Improved", "not cured": "Not cured", data_mismatch: "The data do not fit",
  };
  function showVerdict() {
    document.title = `Kaon: ${report.model}, ${report.scheme}: ${report.verdict}`;
    const verdict = byId("verdict");
    verdict.textContent = words[report.verdict];
    verdict.className = ["healthy", "cured"].includes(report.verdict) ? "good" : report.verdict === "improved" ? "" : "bad";
    byId("model").textContent = `${report.model}, ${report.scheme}`;
    const figures = `${report.metric} ${short(report.float)} in float, ${short(report.quantized)} as ${report.scheme}`;
    byId("story").textContent = report.verdict === "healthy"
      ? `Nothing is wrong: ${figures}; no more is lost than was allowed.`
      : report.verdict === "data_mismatch" ? report.causes[0].text
      : `${figures}, ${short(report.cured)} as prescribed, with ${short(report.cure.bits_average, 3)} bits a weight. ${
        report.causes.length > 0 ? `It is ${report.causes.map((cause) => `${cause.cause} (${percent(cause.share)})`).join(", ")}.`
          : report.out_of_time ? "Time ran out before causes were found." : "No quantizer stands out."}`;
    const facts = [
      ["metric", report.metric + (report.lower_is_better ? ", lower is better" : "")],
      ["samples", String(report.samples)],
      ["came back", percent(report.recovered)],
      ["held-out samples", `${report.held_out.samples}: ${short(report.held_out.float)} → ${
        short(report.held_out.quantized)} → ${short(report.held_out.cured)}`],
      ["size", report.cure.bytes === report.cure.bytes_before ? bytes(report.cure.bytes)
        : `${bytes(report.cure.bytes_before)} → ${bytes(report.cure.bytes)}`],
      ["bits a weight, scales aside", short(report.cure.bits_average, 3)],
      ["passes over the data", short(report.forwards, 3)],
      ["time", `${short(report.seconds, 3)} s`],
    ];
    byId("summary").append(...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    const bars = [["float", report.float, "--float"], [report.scheme || "quantized", report.quantized, "--clip"],
      ["as prescribed", report.cured, "--quantized"]].filter(([, value]) => value !== null);
    new Chart(byId("figures"), {
      type: "bar",
      data: { labels: bars.map((bar) => bar[0]),
        datasets: [{ data: bars.map((bar) => bar[1]), backgroundColor: bars.map((bar) => css(bar[2])), maxBarThickness: 34 }] },
      options: { indexAxis: "y", animation: false, maintainAspectRatio: false,
        scales: { x: { beginAtZero: true, title: { display: true, text: report.metric } }, y: { grid: { display: false } } },
        plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => short(item.raw, 5) } } } },
      plugins: [{ id: "marks", afterDatasetsDraw: (chart) => {
        const { ctx, scales: { x }, chartArea } = chart;
        const target = report.target === null ? null : x.getPixelForValue(report.target);
        ctx.save();
        ctx.font = "600 13px sans-serif";
        ctx.textBaseline = "middle";
        chart.getDatasetMeta(0).data.forEach((bar, i) => {
          const text = short(bars[i][1]);
          const width = ctx.measureText(text).width;
          const crosses = (from) => target !== null && target > from - 4 && target < from + width + 4;
          const inside = bar.x + 8 + width > chartArea.right || crosses(bar.x + 8);
          const end = crosses(bar.x - 8 - width) ? Math.min(target, bar.x) - 8 : bar.x - 8;
          ctx.textAlign = inside ? "right" : "left";
          ctx.fillStyle = inside ? "#fff" : css("--ink");
          ctx.fillText(text, inside ? end : bar.x + 8, bar.y);
        });
        if (target !== null) {
          ctx.strokeStyle = css("--ink");
          ctx.setLineDash([5, 4]);
          ctx.beginPath();
          ctx.moveTo(target, chartArea.top);
          ctx.lineTo(target, chartArea.bottom);
          ctx.stroke();
        }
        ctx.restore();
      } }],
    });
    if (report.advice) {
      byId("advice").hidden = false;
      byId("advice").textContent = `What would be needed: ${report.advice}.`;
    }
    byId("prescribed").hidden = report.cure.changes.length === 0;
    byId("changes").append(...report.cure.changes.map((change) => make("li", {}, change)));
    byId("files").append(`The dashed line is the target, ${short(report.target)}. `, "Replay: ",
      make("code", {}, "kaon quantize --config cure.json"), report.cure.calibration
        ? ` with the first ${report.cure.calibration.samples} samples of the evaluation data to calibrate on. ` : ". ",
      ...(page.pages || []).flatMap(([file, name]) => [make("a", { href: file }, name), " "]));
  }

  // ---- causes, with pictures of their worst quantizers

  const look = (color) => ({ borderColor: color, backgroundColor: color });

  function histogram(parent, before, after) {
    const sets = [["float", before.input, "--float"], ["quantized", before.output, "--clip"],
      ["as prescribed", after && after.output, "--quantized"]].filter(([, h]) => h);
    if (sets.length === 0) return;
    const box = make("div", { class: "chart low" }, make("canvas", { role: "img" }));
    parent.append(box);
    new Chart(box.firstChild, {
      type: "line",
      data: { datasets: sets.map(([label, h, color]) => ({ label, ...look(css(color)), borderWidth: 1.5, pointRadius: 0, stepped: "middle",
        data: h.counts.map((count, i) => ({ x: h.start + (i + 0.5) * h.width, y: count > 0 ? count : null })) })) },
      options: { animation: false, maintainAspectRatio: false, parsing: false, spanGaps: true,
        scales: { x: { type: "linear", title: { display: true, text: "value" }, ticks: { maxTicksLimit: 9 } },
          y: { type: "logarithmic", title: { display: true, text: "count" }, ticks: { maxTicksLimit: 5 } } },
        plugins: { legend: { position: "top", align: "end", labels: { boxWidth: 12, boxHeight: 12 } } } },
    });
  }

  function channels(parent, before, after) {
    const c = before.channels;
    if (!c) return;
    const box = make("div", { class: "chart low" }, make("canvas", { role: "img" }));
    parent.append(box);
    const sets = [["as it was", c, "--clip"], ["as prescribed", after && after.channels, "--quantized"]].filter(([, x]) => x);
    new Chart(box.firstChild, {
      type: "bar",
      data: { labels: c.low.map((_, i) => String(i * c.group)),
        datasets: sets.map(([label, x, color]) => ({ label, backgroundColor: css(color), grouped: true, minBarLength: 1,
          barPercentage: 1, categoryPercentage: 0.9, data: x.low.map((low, i) => [low, x.high[i]]) })) },
      options: { animation: false, maintainAspectRatio: false,
        scales: { x: { grid: { display: false }, ticks: { maxTicksLimit: 12, maxRotation: 0 }, title: { display: true, text: `channel, ${c.count} of them` } },
          y: { title: { display: true, text: "range" }, ticks: { maxTicksLimit: 6 } } },
        plugins: { legend: { position: "top", align: "end", labels: { boxWidth: 12, boxHeight: 12 } } } },
    });
  }

  function showCauses() {
    report.causes.forEach((cause, index) => {
      const names = cause.layers.slice(0, 8).map((layer, i) => (cause.slots[i] ? `${layer} · ${cause.slots[i]}` : layer));
      const more = cause.layers.length - names.length;
      const card = make("section", { class: "card cause" },
        make("h2", {}, make("b", {}, percent(cause.share)), ` ${cause.cause}`),
        make("p", { class: "reading" }, cause.text),
        make("p", { class: "names" }, names.join(", ") + (more > 0 ? ` and ${more} more` : "")),
        make("dl", { class: "facts" }, ...page.evidence[index].map(([name, value]) =>
          make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, short(value))))));
      byId("causes").append(card);
      for (const picture of page.pictures.filter((one) => one.cause === index)) {
        const left = make("div", {}, make("h3", {}, `${picture.layer} · ${picture.slot}: channels`));
        const right = make("div", {}, make("h3", {}, `${picture.layer} · ${picture.slot}: values`));
        card.append(make("div", { class: "pictures" }, left, right));
        channels(left, picture.before, picture.after);
        histogram(right, picture.before, picture.after);
      }
    });
  }

  // ---- sensitivity

  const slotColor = { weight: "--float", input: "--quantized", output: "--arrives", bias: "--muted" };
  const charts = {};

  function drawSensitivity() {
    const slot = byId("slot").value;
    const order = byId("order").value;
    const shown = report.sensitivity.filter((row) => slot === "" || row.slot === slot);
    shown.sort(order === "place" ? (a, b) => a.id - b.id : (a, b) => b[order] - a[order]);
    const names = shown.map((row) => {
      const name = `${row.layer} · ${row.slot}`;
      return name.length > 34 ? `…${name.slice(-33)}` : name;
    });
    const height = Math.min(3000, Math.max(180, 60 + 15 * shown.length));
    const thickness = height < 60 + 15 * shown.length ? undefined : 9;
    const options = (title, log) => ({
      indexAxis: "y", animation: false, maintainAspectRatio: false,
      scales: { x: { type: log ? "logarithmic" : "linear", position: "top", title: { display: true, text: title },
        ticks: { maxTicksLimit: 6, maxRotation: 0, callback: (value) => (log ? (Number.isInteger(Math.log10(value)) ? value.toExponential(0) : "") : percent(value)) } },
        y: { grid: { display: false }, ticks: { autoSkip: thickness === undefined, font: { size: 11 } } } },
      plugins: { legend: { display: false }, tooltip: { callbacks: { label: (item) => {
        const row = shown[item.dataIndex];
        return [`goes without it: ${percent(row.gain)} (${percent(row.low)} … ${percent(row.high)})`,
          `alone: ${short(row.alone)}, ${short(row.sqnr_db)} dB`, `${report.metric} alone ${short(row.only_this)}, without ${short(row.without_this)}`,
          `${row.format}, ${row.samples} samples`];
      } } } },
    });
    const whiskers = { id: "whiskers", afterDatasetsDraw: (chart) => {
      const { ctx, scales: { x } } = chart;
      ctx.save();
      ctx.strokeStyle = css("--ink");
      chart.getDatasetMeta(0).data.forEach((bar, i) => {
        const low = x.getPixelForValue(shown[i].low), high = x.getPixelForValue(shown[i].high);
        ctx.beginPath();
        ctx.moveTo(low, bar.y);
        ctx.lineTo(high, bar.y);
        for (const at of [low, high]) {
          ctx.moveTo(at, bar.y - 3);
          ctx.lineTo(at, bar.y + 3);
        }
        ctx.stroke();
      });
      ctx.restore();
    } };
    const colors = shown.map((row) => css(slotColor[row.slot]));
    const draw = (id, values, title, log, plugins) => {
      byId(id).parentNode.style.height = `${height}px`;
      charts[id]?.destroy();
      const config = { type: "bar", data: { labels: names, datasets: [{ data: values, backgroundColor: colors, barThickness: thickness }] },
        options: options(title, log), plugins };
      if (id === "gain") {
        config.options.scales.x.suggestedMin = Math.min(0, ...shown.map((row) => row.low));
        config.options.scales.x.suggestedMax = Math.max(...shown.map((row) => row.high));
      }
      charts[id] = new Chart(byId(id), config);
    };
    draw("gain", shown.map((row) => row.gain), "share of the harm that goes without it", false, [whiskers]);
    draw("alone", shown.map((row) => (row.alone > 0 ? row.alone : null)), "harm of it alone, log scale", true, []);
    table("quantizers", [["layer", (r) => r.layer, "text"], ["slot", (r) => r.slot, "text"], ["format", (r) => r.format, "text"],
      ["share", (r) => percent(r.share)], ["goes without", (r) => percent(r.gain)], ["from", (r) => percent(r.low)],
      ["to", (r) => percent(r.high)], [`${report.metric} alone`, (r) => short(r.only_this)],
      [`${report.metric} without`, (r) => short(r.without_this)], ["KL alone", (r) => (r.kl === null ? "–" : short(r.kl))],
      ["SQNR alone, dB", (r) => short(r.sqnr_db, 3)], ["samples", (r) => String(r.samples)]], shown);
  }

  function showSensitivity() {
    const present = ["weight", "input", "output"].filter((slot) => report.sensitivity.some((row) => row.slot === slot));
    byId("slot").append(make("option", { value: "" }, "everything"), ...present.map((slot) => make("option", { value: slot }, `${slot}s`)));
    for (const id of ["order", "slot"]) byId(id).addEventListener("change", drawSensitivity);
    drawSensitivity();
  }

  // ---- what was tried, the front, the steps

  function showTried() {
    byId("tried-card").hidden = report.tried.length === 0;
    table("tried", [["cure", (t) => t.cure, "wrap"], ["kind", (t) => t.tier, "text"],
      ["where", (t) => (t.layers.length === 0 ? "the whole model" : t.layers.length > 3 ? `${t.layers.slice(0, 3).join(", ")} and ${t.layers.length - 3} more` : t.layers.join(", ")), "wrap"],
      ["before", (t) => short(t.before)], ["after", (t) => short(t.after)],
      ["harm, held out", (t) => `${short(t.harm_before, 3)} → ${short(t.harm_after, 3)}`],
      ["size", (t) => bytes(t.bytes)], ["seconds", (t) => short(t.seconds, 3)],
      ["kept", (t) => (t.kept ? (t.note ? `yes: ${t.note}` : "yes") : t.note ? `no: ${t.note}` : "no"), "wrap"]],
      report.tried, (t) => (t.kept ? "kept" : undefined));
    byId("front-card").hidden = report.tried.length === 0;
    if (report.tried.length === 0) return;
    const rest = report.tried.filter((t) => t.after !== null).map((t) => ({ x: t.bytes, y: t.after, name: t.cure }));
    rest.push({ x: report.cure.bytes_before, y: report.quantized, name: "as it was brought in" });
    const sizes = [...report.front.map((p) => p.bytes), ...rest.map((p) => p.x)];
    new Chart(byId("front"), {
      type: "line",
      data: { datasets: [
        { label: "as prescribed", ...look(css("--quantized")), showLine: false, pointRadius: 7, pointStyle: "rectRot",
          data: [{ x: report.cure.bytes, y: report.cured, name: "as prescribed" }] },
        { label: "best for its size", ...look(css("--float")), pointRadius: 5, borderWidth: 2, stepped: "before",
          data: report.front.map((p) => ({ x: p.bytes, y: p.metric, name: p.name })) },
        { label: "tried", ...look(css("--muted")), showLine: false, pointRadius: 3, data: rest },
        { label: "target", ...look(css("--ink")), borderDash: [5, 4], borderWidth: 1, pointRadius: 0, pointHitRadius: 0, pointStyle: "line",
          data: report.target === null ? [] : [Math.min(...sizes), Math.max(...sizes)].map((x) => ({ x, y: report.target })) }] },
      options: { animation: false, maintainAspectRatio: false, parsing: false,
        scales: { x: { type: "linear", title: { display: true, text: "bytes of the constants" }, ticks: { callback: (v) => bytes(v), maxTicksLimit: 8 } },
          y: { title: { display: true, text: report.metric } } },
        plugins: { legend: { position: "top", align: "end", labels: { boxWidth: 12, boxHeight: 9, usePointStyle: true } },
          tooltip: { callbacks: { label: (item) => `${item.raw.name}: ${short(item.raw.y)} at ${bytes(item.raw.x)}` } } } },
    });
  }

  function showSteps() {
    table("steps", [["step", (s) => String(s.step)], ["name", (s) => s.name, "text"], ["what was found", (s) => s.finding, "wrap"],
      ["passes", (s) => short(s.forwards, 3)], ["seconds", (s) => short(s.seconds, 3)]], report.steps);
  }

  Chart.defaults.color = css("--muted");
  Chart.defaults.borderColor = css("--line");
  showVerdict();
  showCauses();
  showSensitivity();
  showTried();
  showSteps();
})();
