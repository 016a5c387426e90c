// Draws every chart of the page in the colours of its style sheet, and again when the reader's colour scheme changes.
// Marks in the navigation the section that is being read.

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

const list = document.querySelector("nav ul");
const links = [...list.querySelectorAll("a")];

// The section being read is the last one that begins in the upper third of the window. At the end of the page short
// sections do not get there: then it is the last one, or the one that the reader has jumped to.
function mark() {
  const top = (link) => document.querySelector(link.hash).getBoundingClientRect().top;
  const atEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 2;
  const asked = links.find((link) => link.hash === window.location.hash && top(link) >= 0);
  const current = atEnd ? asked ?? links.at(-1) : links.findLast((link) => top(link) < window.innerHeight / 3) ?? links[0];
  if (current.ariaCurrent) return;
  links.forEach((link) => link.removeAttribute("aria-current"));
  current.ariaCurrent = "location";
  list.scrollTo({ left: current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2 });
}

for (const event of ["scroll", "resize", "hashchange"]) window.addEventListener(event, mark, { passive: true });
mark();
