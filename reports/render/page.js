// Reads values off charts, zooms the axis of time, and saves charts. The page is whole without it.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const show = (event, text) => {
    tip.textContent = text;
    tip.hidden = !text;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room))}px`;
    tip.style.top = `${event.clientY + 16}px`;
  };
  const digits = (value) => String(+value.toPrecision(3));
  const axis = (svg, name) => {
    const [low, high, kind, ...unit] = svg.dataset[name].split(" ");
    const ends = name === "x" && svg.zoomed ? svg.zoomed : [+low, +high];
    const log = kind === "log";
    const at = (share) => log ? ends[0] * (ends[1] / ends[0]) ** share : ends[0] + (ends[1] - ends[0]) * share;
    return { low: +low, high: +high, at, unit: unit.join(" ") };
  };
  // The height of a line at x, in the units of its area; null in a gap.
  const heightAt = (path, x) => {
    path.points ??= (() => {
      const found = [];
      let y = 0;
      for (const [, kind, a, b] of path.getAttribute("d").matchAll(/([MLHV])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
        const last = found.length ? found[found.length - 1][0] : 0;
        if (kind === "H") found.push([+a, y, false]);
        else if (kind === "V") { y = +a; found.push([last, y, false]); }
        else { y = +b; found.push([+a, y, kind === "M"]); }
      }
      return found;
    })();
    const points = path.points;
    for (let i = 1; i < points.length; i++) {
      const [x0, y0] = points[i - 1], [x1, y1, broken] = points[i];
      if (!broken && x0 <= x && x <= x1) return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
    }
    return null;
  };
  const readOff = (svg, event) => {
    const area = svg.querySelector("svg.area"), box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    const view = area.viewBox.baseVal, x = axis(svg, "x"), y = axis(svg, "y");
    const values = [...area.querySelectorAll(".line")].flatMap((path) => {
      const height = heightAt(path, view.x + share * view.width);
      return height === null ? [] : [`${path.dataset.name} ${digits(y.at(1 - height / view.height))} ${y.unit}`];
    });
    return values.length ? `${digits(x.at(share))} ${x.unit}: ${values.join(", ")}` : "";
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest?.("[data-tip]");
    const svg = event.target.closest?.("svg.time");
    show(event, mark ? mark.dataset.tip : svg ? readOff(svg, event) : "");
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });

  const zoom = (figure, ends) => {
    for (const svg of figure.querySelectorAll("svg.time")) {
      const area = svg.querySelector("svg.area"), view = area.viewBox.baseVal;
      svg.zoomed = null;
      const { low, high } = axis(svg, "x");
      const [from, to] = ends ?? [low, high];
      svg.zoomed = ends;
      const scale = 1000 / (high - low);
      area.setAttribute("viewBox", `${(from - low) * scale} 0 ${(to - from) * scale} ${view.height}`);
      for (const tick of svg.querySelectorAll(".xt")) {
        tick.whole ??= tick.textContent;
        const x = axis(svg, "x");
        tick.textContent = ends ? `${digits(x.at(parseFloat(tick.getAttribute("x")) / 100))} ${x.unit}` : tick.whole;
      }
    }
    figure.classList.toggle("zoomed", Boolean(ends));
    figure.querySelector(".reset").hidden = !ends;
  };
  const button = (word, label, act) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = word;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", act);
    return made;
  };
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  const drawn = (figure) => {
    const space = "http://www.w3.org/2000/svg", whole = document.createElementNS(space, "svg");
    let y = 0, width = 0;
    for (const svg of figure.querySelectorAll("svg.pic")) {
      const copy = svg.cloneNode(true), box = svg.getBoundingClientRect();
      const texts = [...copy.querySelectorAll("text")];
      svg.querySelectorAll("text").forEach((text, i) => text.checkVisibility() || texts[i].remove());
      copy.setAttribute("width", box.width);
      copy.setAttribute("y", y);
      y += box.height + 12;
      width = Math.max(width, box.width);
      whole.append(copy);
    }
    whole.setAttribute("width", width);
    whole.setAttribute("height", y);
    return new XMLSerializer().serializeToString(whole);
  };
  const rows = (figure) => [...figure.querySelectorAll("table tr")].map((row) =>
    [...row.cells].map((cell) => `"${cell.textContent.trim().replaceAll('"', '""').replaceAll(/[\u202f\u00a0]/g, " ")}"`).join(",")
  ).join("\r\n");

  for (const figure of document.querySelectorAll("figure")) {
    const title = figure.querySelector(".chart-title").textContent;
    const tools = document.createElement("span");
    tools.className = "tools";
    const reset = button("Reset zoom", `Reset zoom: ${title}`, () => zoom(figure, null));
    reset.className = "reset";
    reset.hidden = true;
    tools.append(
      reset,
      button("SVG", `Save as SVG: ${title}`, () => save(`${figure.id}.svg`, "image/svg+xml", drawn(figure))),
      button("CSV", `Save as CSV: ${title}`, () => save(`${figure.id}.csv`, "text/csv", rows(figure))),
    );
    figure.querySelector("figcaption").append(tools);
    for (const svg of figure.querySelectorAll("svg.time")) {
      svg.addEventListener("pointerdown", (event) => {
        if (event.pointerType === "touch" || event.button) return;
        event.preventDefault();
        const box = svg.getBoundingClientRect(), start = event.clientX;
        const veil = document.createElement("div");
        veil.className = "veil";
        document.body.append(veil);
        const move = (to) => {
          veil.style.left = `${Math.min(start, to.clientX)}px`;
          veil.style.width = `${Math.abs(to.clientX - start)}px`;
          veil.style.top = `${box.top}px`;
          veil.style.height = `${box.height}px`;
        };
        move(event);
        document.addEventListener("pointermove", move);
        document.addEventListener("pointerup", (end) => {
          document.removeEventListener("pointermove", move);
          veil.remove();
          if (Math.abs(end.clientX - start) < 8) return;
          const x = axis(svg, "x");
          const shares = [start, end.clientX].map((px) => Math.max(0, Math.min(1, (px - box.left) / box.width)));
          zoom(figure, [Math.min(...shares), Math.max(...shares)].map(x.at));
        }, { once: true });
      });
      svg.addEventListener("dblclick", () => zoom(figure, null));
    }
  }
})();
