// A small line of a value over the last minutes.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [120, 28];

/** A line, from values that follow each other in time. The number beside it says the same to screen readers. */
export function sparkline() {
  const line = document.createElementNS(SVG, "path");
  const area = document.createElementNS(SVG, "path");
  area.setAttribute("class", "area");
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("class", "sparkline");
  picture.setAttribute("aria-hidden", "true");
  picture.append(area, line);
  const draw = (points) => {
    if (points.length < 2) return;
    const begin = points[0].at;
    const span = points.at(-1).at - begin || 1;
    const most = Math.max(...points.map((each) => each.value)) || 1;
    const places = points.map(({ at, value }) => {
      const x = ((at - begin) / span) * WIDTH;
      const y = HEIGHT - 2 - (value / most) * (HEIGHT - 4);
      return `${x.toFixed(1)} ${y.toFixed(1)}`;
    });
    line.setAttribute("d", `M${places.join("L")}`);
    area.setAttribute("d", `M0 ${HEIGHT}L${places.join("L")}L${WIDTH} ${HEIGHT}Z`);
  };
  return { picture, draw };
}
