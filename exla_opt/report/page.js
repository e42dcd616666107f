"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const chart = document.getElementById("chart");
  const logarithmic = document.getElementById("logarithmic");
  const [limit, limitName] =
    data.options.memory_limit === null
      ? [data.options.size_threshold, "Threshold for one tensor"]
      : [data.options.memory_limit, "Memory limit"];
  const sides = [
    { name: "Before", color: "--before", ...data.before },
    { name: "After", color: "--after", ...data.after },
  ].filter((side) => side.points.length);
  const highest = Math.max(1, ...sides.map((side) => side.memory.peak));
  // Listed one by one: so many of the largest tensors, but few that are less than one part in so many of what is alive.
  const MOST_ROWS = 12;
  const FEWEST_ROWS = 3;
  const LEAST_SHARE = 1000;
  const MARKED = 60; // fewer points than this are marked one by one

  const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
  function formatSize(bytes) {
    let unit = 0;
    let value = bytes;
    while (value >= 999.5 && unit < UNITS.length - 1) {
      value /= 1000;
      unit += 1;
    }
    return (value >= 999.5 ? value.toFixed(0) : String(Number(value.toPrecision(3)))) + UNITS[unit];
  }

  function element(kind, text, className) {
    const made = document.createElement(kind);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }

  // Plotly reads tags and entities in its labels.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Both programs fill the width: where one has 20 ops and the other 2000, numbers of ops would not compare.
  const share = (side, point) => (100 * (point + 0.5)) / side.points.length;

  // Arguments and results are there all the time.
  const held = (side) => side.memory.peak - side.memory.temp;

  function curve(side) {
    return {
      name: side.name,
      x: side.points.map((_, point) => share(side, point)),
      y: side.points.map((point) => held(side) + point.bytes),
      text: side.points.map((point) => `${plain(point.op)}, ${formatSize(held(side) + point.bytes)}`),
      hovertemplate: "%{text}",
      mode: side.points.length < MARKED ? "lines+markers" : "lines",
      line: { shape: "hvh", width: 2, color: shade(side.color) },
      marker: { size: 4 },
    };
  }

  function peak(side) {
    const at = share(side, side.peak_point);
    return {
      x: [at],
      y: [side.memory.peak],
      text: [`peak ${formatSize(side.memory.peak)}`],
      mode: "markers+text",
      textposition: `top ${at < 20 ? "right" : at > 80 ? "left" : "center"}`,
      textfont: { color: shade(side.color) },
      marker: { size: 10, symbol: "diamond", color: shade(side.color) },
      cliponaxis: false,
      showlegend: false,
      hoverinfo: "skip",
    };
  }

  function threshold() {
    const color = shade("--limit");
    return {
      name: `${limitName}, ${formatSize(limit)}`,
      x: [0, 100],
      y: [limit, limit],
      mode: "lines",
      line: { width: 1.5, color, dash: "dash" },
      hoverinfo: "skip",
    };
  }

  // Linear: about five round numbers; logarithmic: the powers of ten.
  function ticks(bottom, top) {
    if (logarithmic.checked) {
      const lowest = Math.ceil(Math.log10(bottom));
      return Array.from({ length: Math.floor(Math.log10(top)) - lowest + 1 }, (_, power) => 10 ** (power + lowest));
    }
    const power = 10 ** Math.floor(Math.log10(top / 5));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power * 5 >= top);
    return Array.from({ length: Math.floor(top / step) + 1 }, (_, count) => count * step);
  }

  // A threshold far above both curves would flatten them: it is stated below the chart instead.
  const isFar = () => limit > 2 * highest && !logarithmic.checked;

  function layout() {
    const top = Math.max(highest, isFar() ? 0 : limit) * (logarithmic.checked ? 5 : 1.18);
    const bottom = logarithmic.checked ? Math.max(1, highest / 1e6) : 0;
    const values = ticks(bottom, top);
    const grid = { gridcolor: shade("--line"), zerolinecolor: shade("--line"), linecolor: shade("--line") };
    return {
      autosize: true,
      margin: { l: 60, r: 24, t: 30, b: 46 },
      font: { family: "system-ui, sans-serif", size: 12, color: shade("--text") },
      paper_bgcolor: shade("--ground"),
      plot_bgcolor: shade("--ground"),
      hovermode: "x",
      hoverdistance: -1,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
      xaxis: { title: { text: "position in the program" }, range: [0, 100], ticksuffix: "%", hoverformat: ".0f", ...grid },
      yaxis: {
        type: logarithmic.checked ? "log" : "linear",
        range: logarithmic.checked ? [Math.log10(bottom), Math.log10(top)] : [bottom, top],
        tickvals: values,
        ticktext: values.map(formatSize),
        fixedrange: true,
        ...grid,
      },
    };
  }

  function aliveAt(side, point) {
    const found = side.tensors.filter((tensor) => tensor.first <= point && point <= tensor.last);
    return found.sort((one, other) => other.bytes - one.bytes);
  }

  function row(cells) {
    const made = element("tr");
    made.append(...cells);
    return made;
  }

  function tensorRow(tensor) {
    const what = element("td");
    what.append(element("code", tensor.type), element("br"), element("code", tensor.location, "place"));
    return row([element("td", formatSize(tensor.bytes), "bytes"), what]);
  }

  function describe(side, point) {
    const box = element("div");
    const one = side.points[point];
    const title = point === side.peak_point ? `${side.name}, at the peak` : side.name;
    box.style.borderColor = shade(side.color);
    box.append(element("h3", `${title}: ${formatSize(held(side) + one.bytes)}`));
    const where = element("p", undefined, "place");
    const loops = one.depth === 0 ? "" : one.depth === 1 ? ", in a loop" : `, in ${one.depth} nested loops`;
    const place = one.location === one.op ? [] : [" at ", element("code", one.location)];
    where.append(`step ${point + 1} of ${side.points.length}, `, element("code", one.op), ...place, loops);
    box.append(where);
    const alive = aliveAt(side, point);
    const isListed = (tensor, place) =>
      place < FEWEST_ROWS || (place < MOST_ROWS && tensor.bytes * LEAST_SHARE >= one.bytes);
    const listed = alive.filter(isListed);
    const rest = alive.slice(listed.length);
    const table = element("table");
    table.append(...listed.map(tensorRow));
    const sum = (tensors) => tensors.reduce((bytes, tensor) => bytes + tensor.bytes, 0);
    const others = [
      [sum(rest), `${rest.length} more tensor${rest.length > 1 ? "s" : ""}`],
      [one.bytes - sum(alive), "scratch memory of this op"],
      [held(side), "arguments and results"],
    ];
    for (const [bytes, word] of others) {
      if (bytes > 0) table.append(row([element("td", formatSize(bytes), "bytes"), element("td", word)]));
    }
    box.append(table);
    return box;
  }

  function show(points) {
    document.getElementById("alive").replaceChildren(...sides.map((side, index) => describe(side, points[index])));
  }

  const shown = sides.map((side) => side.peak_point);

  function draw() {
    const traces = [...sides.map(curve), ...sides.map(peak), ...(isFar() ? [] : [threshold()])];
    Plotly.react(chart, traces, layout(), { responsive: true, displayModeBar: false });
    document.getElementById("below").textContent = isFar()
      ? `${limitName}: ${formatSize(limit)}, above this chart.`
      : "";
    show(shown);
  }

  if (!sides.length) {
    chart.replaceWith(element("p", "The main function has no ops."));
    document.getElementById("scale").remove();
    return;
  }
  draw();
  chart.on("plotly_hover", (event) => {
    for (const { curveNumber, pointNumber } of event.points) {
      if (curveNumber < sides.length) shown[curveNumber] = pointNumber;
    }
    show(shown);
  });
  logarithmic.addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
