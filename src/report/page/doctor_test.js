// Appended to the doctor's page by a test: uses it as a person would, and leaves what it found in #result.
(async () => {
  const problems = [];
  const check = (ok, what) => { if (!ok) problems.push(what); };
  const later = () => new Promise((resolve) => setTimeout(resolve, 30));
  const page = JSON.parse(document.getElementById("data").textContent);
  const report = page.diagnosis;
  const rows = (id) => [...document.getElementById(id).tBodies[0].rows];
  const choose = async (id, value) => {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event("change"));
    await later();
  };
  const names = (list) => list.map((row) => `${row.layer} ${row.slot}`).join();
  const shown = () => rows("quantizers").map((row) => `${row.cells[0].textContent} ${row.cells[1].textContent}`).join();
  try {
    await later();
    const top = document.querySelector("header").textContent;
    check(top.includes("Cured") && top.includes("bits a weight"), top);
    const titles = [...document.querySelectorAll("main h2")].map((h2) => h2.textContent);
    const order = ["What was lost", ...report.causes.map((cause) => cause.cause), "Every quantizer", "What was tried", "Size and accuracy",
      "Step by step"];
    check(titles.length === order.length && order.every((part, i) => titles[i].includes(part)), titles.join());
    report.causes.forEach((_, i) => {
      const facts = [...document.querySelectorAll(".cause")[i].querySelectorAll("dt")].map((dt) => dt.textContent);
      check(facts[0] === "harm" && facts.length === page.evidence[i].length, `evidence: ${facts}`);
    });
    check(rows("tried").length === report.tried.length, `${rows("tried").length} were tried`);
    check(rows("steps").length === report.steps.length, `${rows("steps").length} steps`);

    check(shown() === names(report.sensitivity), "not in order of share");
    for (const key of ["gain", "alone"]) {
      await choose("order", key);
      check(shown() === names([...report.sensitivity].sort((a, b) => b[key] - a[key])), `not in order of ${key}`);
    }
    await choose("order", "place");
    check(shown() === names([...report.sensitivity].sort((a, b) => a.id - b.id)), "not in the model's order");
    await choose("slot", "weight");
    check(rows("quantizers").length === report.sensitivity.filter((row) => row.slot === "weight").length, "not only weights");

    for (const canvas of document.querySelectorAll("canvas")) {
      const chart = Chart.getChart(canvas);
      check(chart && chart.data.datasets.some((set) => set.data.length > 0) && canvas.width > 100 && canvas.height > 100,
        `nothing is drawn in #${canvas.id}`);
    }
    check(document.documentElement.scrollWidth <= innerWidth, "the page is wider than the window");
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
