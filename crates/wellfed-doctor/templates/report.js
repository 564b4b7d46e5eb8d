"use strict";
// Draws the charts that the page's data describe. Colours come from the style sheet, so that they follow light, dark and print.
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const drawn = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const shown = (value, unit) => {
    if (value == null) return "–";
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return value.toLocaleString("en", { maximumFractionDigits: unit === "%" ? 0 : digits }) + " " + unit;
  };
  const dashes = { c2: [6, 4], c3: [2, 3] };
  const font = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  const axis = (more) => ({
    stroke: () => colour("faint"), font, ticks: { show: false }, grid: { stroke: () => colour("rule"), width: 1 }, ...more,
  });
  const draw = (chart) => {
    const place = document.getElementById(chart.id);
    const size = () => ({ width: Math.floor(place.clientWidth), height: place.clientHeight });
    const values = [...document.querySelectorAll(`[data-chart="${chart.id}"]`)];
    const means = values.map((element) => element.textContent);
    const plot = new uPlot({
      ...size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false }, sync: { key: "time" } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, chart.top || Math.max(high * 1.08, 1e-9)] } },
      axes: [
        axis({ size: 26, space: 70, grid: { show: false }, values: (_, all) => all.map((t) => t + " s") }),
        axis({ size: 44, space: 36, values: (_, all) => all.map((v) => (v == null ? "" : v.toLocaleString("en") + (chart.unit === "%" ? " %" : ""))) }),
      ],
      series: [{}, ...chart.series.map((series) => ({
        label: series.name,
        stroke: () => colour(series.tone === "c3" ? "c2" : series.tone),
        fill: series.fill ? () => colour(series.tone) + (chart.stepped ? "" : "2b") : undefined,
        width: chart.stepped ? 0 : 1.6,
        dash: dashes[series.tone],
        points: { show: false },
        paths: chart.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      }))],
      hooks: {
        setCursor: [(u) => values.forEach((element, i) => {
          const at = u.cursor.idx;
          element.textContent = at == null ? means[i] : shown(u.data[i + 1][at], chart.unit);
        })],
      },
    }, [chart.x, ...chart.series.map((series) => series.values)], place);
    drawn.push({ plot, size });
  };
  charts.forEach(draw);
  const redraw = () => drawn.forEach(({ plot, size }) => { plot.setSize(size()); plot.redraw(false); });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // On paper the page is light, and as wide as the paper: A4 and Letter within their margins.
  addEventListener("beforeprint", () => {
    document.documentElement.classList.add("printing");
    drawn.forEach(({ plot, size }) => {
      const wide = plot.root.closest(".wide");
      plot.setSize({ width: wide ? 640 : 300, height: size().height });
      plot.redraw(false);
    });
  });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("printing"); redraw(); });
})();
