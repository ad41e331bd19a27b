// Appended to a page by html_test.cpp: uses it as a person would, and leaves what it found in #result.
(async () => {
  const problems = [];
  const check = (ok, what) => { if (!ok) problems.push(what); };
  const later = () => new Promise((resolve) => setTimeout(resolve, 30));
  const title = () => document.querySelector("#detail h2").textContent;
  /** Charts handle events in the next animation frame. */
  const eventually = async (condition) => { for (let i = 0; i < 100 && !condition(); ++i) await later(); };
  const body = document.querySelector("#table tbody");
  const texts = (column) => [...body.rows].map((row) => row.cells[column].textContent);
  const header = (key) => document.querySelector(`th[data-key="${key}"]`);
  const drawn = (canvas) => {
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
    const colors = new Set();
    for (let i = 0; i < pixels.length; i += 4) {
      if (pixels[i + 3] > 200) colors.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
    }
    return canvas.width > 100 && canvas.height > 100 && colors.size > 3;
  };
  try {
    await later();
    const shown = document.getElementById("shown").textContent;
    check(shown === "EXPECTED_ROWS slots", shown);
    const scroll = document.querySelector(".scroll");
    for (let i = 0; i < 20; ++i) {
      scroll.scrollTop = scroll.scrollHeight;
      await later();
      scroll.dispatchEvent(new Event("scroll"));
    }
    check(body.rows.length === EXPECTED_ROWS, `${body.rows.length} rows after scrolling to the end`);
    check(drawn(document.getElementById("overview")), "the overview is empty");
    check(title() === texts(0)[0], "the worst layer is not shown first");

    const reading = header("reading").getBoundingClientRect();
    const visible = scroll.getBoundingClientRect().right - reading.left;
    check(visible > Math.min(reading.width, 200), `only ${visible} pixels of the readings are in sight`);
    const counted = Chart.getChart("overview").data.labels.length;
    const said = [...document.querySelectorAll("#summary dt")].find((dt) => dt.textContent === "quantizers");
    check(said.nextElementSibling.textContent === String(counted), `${counted} bars`);

    const data = JSON.parse(document.getElementById("data").textContent);
    const rankedBy = data.ranked > 0 ? "output_gain" : "channel_error";
    check(header(rankedBy).getAttribute("aria-sort") === "descending", `rows are not ranked by ${rankedBy}`);
    check(document.getElementById("metric").value === rankedBy, "the overview shows something else");
    const tiles = [...document.querySelectorAll("#model-numbers dd")].map((dd) => dd.textContent);
    const sqnr = data.outputs.map((output) => output.sqnr_db).filter((value) => value !== null);
    if (sqnr.length > 0) check(tiles[0] === `${Number(Math.min(...sqnr).toPrecision(3))} dB`, `outputs: ${tiles[0]}`);
    check(document.querySelectorAll("#outputs tbody tr").length === data.outputs.length, "outputs are missing");

    header("layer").firstChild.click();
    const names = texts(0);
    check(header("layer").getAttribute("aria-sort") === "ascending", "no aria-sort");
    const inOrder = (a, b) => a.localeCompare(b, "en", { numeric: true }) <= 0;
    check(names.every((name, i) => i === 0 || inOrder(names[i - 1], name)), "names are not sorted");
    header("kurtosis").firstChild.click();
    const column = [...header("kurtosis").parentNode.cells].indexOf(header("kurtosis"));
    const falling = texts(column).map(Number).filter((value) => !Number.isNaN(value));
    check(falling.length > 1, "no kurtosis");
    check(falling.every((value, i) => i === 0 || falling[i - 1] >= value), "kurtosis does not fall");
    header("kurtosis").firstChild.click();
    check(Number(texts(column)[0]) <= Number(texts(column)[1]), "a second click does not turn the order");

    const last = body.rows[body.rows.length - 1];
    last.querySelector("button").click();
    await later();
    check(title() === last.cells[0].textContent, "a click does not show the layer");
    const canvases = [...document.querySelectorAll("#detail canvas")];
    check(canvases.length >= EXPECTED_CHARTS, `${canvases.length} charts of a layer`);
    check(canvases.every(drawn), "an empty chart in the detail");
    check([...body.rows].some((row) => row.classList.contains("selected")), "nothing is marked as selected");

    const overview = Chart.getChart("overview");
    const bar = overview.getDatasetMeta(0).data.find((one, i) => overview.data.datasets[0].data[i] !== null);
    const box = overview.canvas.getBoundingClientRect();
    const place = { clientX: box.x + bar.x, clientY: box.y + (bar.y + bar.base) / 2 };
    overview.canvas.dispatchEvent(new MouseEvent("click", { ...place, bubbles: true }));
    const wanted = overview.data.labels[overview.getDatasetMeta(0).data.indexOf(bar)];
    await eventually(() => wanted.startsWith(title()));
    check(wanted.startsWith(title()), `a click on the bar of ${wanted} shows ${title()}`);
    for (const id of ["metric", "slot", "order"]) {
      const choice = document.getElementById(id);
      for (let i = choice.options.length - 1; i >= 0; --i) {
        choice.selectedIndex = i;
        choice.dispatchEvent(new Event("change"));
        await later();
        check(drawn(document.getElementById("overview")), `the overview is empty for ${id} ${choice.value}`);
      }
    }
    const filter = document.getElementById("filter");
    filter.value = "no layer has this name";
    filter.dispatchEvent(new Event("input"));
    check(body.rows.length === 0, "the filter shows rows that do not match");
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    check(body.rows.length > 0, "the filter hides rows for good");

    const putBeside = async (text) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([text], "report.html"));
      File.prototype.text = async () => text;  // the browser's clock here is virtual, and does not wait for files
      const note = document.getElementById("beside-note");
      note.textContent = "";
      document.getElementById("beside").files = transfer.files;
      document.getElementById("beside").dispatchEvent(new Event("change"));
      await eventually(() => note.textContent !== "");
      return note.textContent;
    };
    check((await putBeside("<p>something else")).startsWith("This is no report"), "any file is taken for a report");
    check(document.querySelector(".pair") === null, "something stands beside");
    const other = JSON.stringify({ ...data, scheme: "w4" }).replace(/</g, "\\u003c");
    const said2 = await putBeside(`<script id="data" type="application/json">${other}<\/script>`);
    check(said2 === "w4: EXPECTED_ROWS of EXPECTED_ROWS slots in common", said2);
    check(Chart.getChart("overview").data.datasets.some((set) => set.label === "w4"), "the other has no marks");
    const pairs = [...document.querySelectorAll("#detail .pair")];
    check(pairs.length > 0 && pairs.every((pair) => pair.children.length === 2), "the other's slots are missing");
    check([...document.querySelectorAll("#detail canvas")].every(drawn), "an empty chart beside another");
    check(body.rows[0].querySelector(".other") !== null, "the table does not show the other");
    check(performance.getEntriesByType("resource").length === 0, "the page loaded something");
  } catch (error) {
    problems.push(String(error.stack || error));
  }
  problems.push(...window.pageErrors);
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = problems.length === 0 ? "fine" : problems.join(" | ");
  document.body.append(result);
})();
