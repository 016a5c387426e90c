// Draw every chart. The colors are variables of the style sheet, so they follow the color scheme of the reader.

const text = { labelColor: "var(--muted)", titleColor: "var(--ink)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
const line = { gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)" };
const config = {
  background: null,
  font: getComputedStyle(document.documentElement).fontFamily,
  view: { stroke: null },
  axis: { ...text, ...line, labelFlush: false, labelSeparation: 6 },
  legend: { ...text, labelColor: "var(--ink)" },
  mark: { color: "var(--test)" },
  text: { color: "var(--muted)", fontSize: 12 },
  style: {
    interval: { color: "var(--muted)", strokeWidth: 2 },
    reference: { color: "var(--muted)", strokeWidth: 1, strokeDash: [4, 3] },
  },
  range: {
    category: ["var(--train)", "var(--validation)", "var(--test)"],
    ordinal: ["var(--test)", "var(--validation)", "var(--train)", "var(--muted)"],
  },
};

for (const place of document.querySelectorAll(".chart")) {
  const specification = JSON.parse(document.getElementById(place.dataset.specification).textContent);
  // With "ast", Vega interprets expressions, so the page can forbid code that is created from text.
  vegaEmbed(place, specification, {
    actions: false, ast: true, config, defaultStyle: false, renderer: "svg",
    tooltip: { theme: window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" },
  });
}
