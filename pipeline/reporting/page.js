// Draw every chart in the colors of the style sheet, and draw it again when the color scheme of the reader changes.

const scheme = window.matchMedia("(prefers-color-scheme: dark)");
let drawn = [];

function config() {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(`--${name}`).trim();
  const text = { labelColor: color("muted"), titleColor: color("ink"), labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  return {
    background: null,
    font: style.fontFamily,
    view: { stroke: null },
    axis: { ...text, gridColor: color("line"), domainColor: color("line"), tickColor: color("line"), labelFlush: false, labelSeparation: 6 },
    legend: { ...text, labelColor: color("ink") },
    mark: { color: color("test") },
    text: { color: color("muted"), fontSize: 12 },
    style: {
      interval: { color: color("muted"), strokeWidth: 2 },
      reference: { color: color("muted"), strokeWidth: 1, strokeDash: [4, 3] },
    },
    range: {
      category: ["train", "validation", "test"].map(color),
      ordinal: ["test", "validation", "train", "muted"].map(color),
    },
  };
}

async function draw() {
  drawn.forEach((chart) => chart.finalize());
  drawn = [];
  for (const place of document.querySelectorAll(".chart")) {
    const specification = JSON.parse(document.getElementById(place.dataset.specification).textContent);
    drawn.push(
      // With "ast", Vega interprets expressions, so the page can forbid code that is created from text.
      await vegaEmbed(place, specification, {
        actions: false, ast: true, config: config(), defaultStyle: false, renderer: "svg",
        tooltip: { theme: scheme.matches ? "dark" : "light" },
      }),
    );
  }
}

// Wait for the previous drawing, because two drawings at once would draw into the same elements.
let drawing = draw();
scheme.addEventListener("change", () => { drawing = drawing.then(draw); });
