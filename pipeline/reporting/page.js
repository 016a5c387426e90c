// Draws every chart of the page in the colours of its style sheet, and again when the reader's colour scheme changes.

const scheme = window.matchMedia("(prefers-color-scheme: dark)");
let drawn = [];

function config() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const text = { labelColor: colour("muted"), titleColor: colour("ink"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  return {
    background: null,
    font: style.fontFamily,
    view: { stroke: null },
    axis: { ...text, gridColor: colour("line"), domainColor: colour("line"), tickColor: colour("line"), labelFlush: false, labelSeparation: 6 },
    legend: { ...text, labelColor: colour("ink") },
    mark: { color: colour("test") },
    text: { color: colour("muted"), fontSize: 12 },
    style: {
      interval: { color: colour("muted"), strokeWidth: 2 },
      reference: { color: colour("muted"), strokeWidth: 1, strokeDash: [4, 3] },
    },
    range: {
      category: ["train", "validation", "test"].map(colour),
      ordinal: ["test", "validation", "train"].map(colour),
    },
  };
}

async function draw() {
  drawn.forEach((chart) => chart.finalize());
  drawn = [];
  for (const place of document.querySelectorAll(".chart")) {
    const specification = JSON.parse(document.getElementById(place.dataset.specification).textContent);
    drawn.push(
      // ast: expressions are interpreted, so that the page may forbid the making of code from text.
      await vegaEmbed(place, specification, {
        actions: false, ast: true, config: config(), defaultStyle: false, renderer: "svg",
        tooltip: { theme: scheme.matches ? "dark" : "light" },
      }),
    );
  }
}

// One drawing after the other: two at once would draw into the same places.
let drawing = draw();
scheme.addEventListener("change", () => { drawing = drawing.then(draw); });
