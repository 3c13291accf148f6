// Reads values off charts, zooms the axis of time (by pointer or keyboard), and saves charts.
// The page is whole without it.
(() => {
  "use strict";
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  const show = ({ clientX, clientY }, text) => {
    tip.textContent = text;
    tip.hidden = !text;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(4, Math.min(clientX + 14, room))}px`;
    tip.style.top = `${clientY + 16}px`;
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
  const readOff = (svg, share) => {
    const area = svg.querySelector("svg.area");
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
    const box = svg?.getBoundingClientRect();
    show(event, mark ? mark.dataset.tip : svg ? readOff(svg, (event.clientX - box.left) / box.width) : "");
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
  // The keyboard moves a cursor over a focused chart; a screen reader announces what it reads off.
  const cursor = document.createElement("div");
  cursor.className = "cursor";
  cursor.hidden = true;
  document.body.append(cursor);
  const place = (svg) => {
    const box = svg.getBoundingClientRect(), text = readOff(svg, svg.share), x = axis(svg, "x");
    const at = { clientX: box.left + svg.share * box.width, clientY: box.top + box.height / 2 };
    cursor.hidden = false;
    cursor.style.left = `${at.clientX}px`;
    cursor.style.top = `${box.top}px`;
    cursor.style.height = `${box.height}px`;
    const now = `${digits(x.at(svg.share))} ${x.unit}`;
    svg.setAttribute("aria-valuenow", digits(x.at(svg.share)));
    svg.setAttribute("aria-valuetext", text || `${now}: no value`);
    show(at, text || now);
  };
  const leave = () => { cursor.hidden = tip.hidden = true; };
  document.addEventListener("scroll", leave, { passive: true });
  const zoomBy = (figure, svg, factor) => {
    const { low, high, at } = axis(svg, "x"), width = (at(1) - at(0)) * factor;
    if (width >= high - low) { zoom(figure, null); return; }
    const from = Math.max(low, Math.min(at(svg.share) - svg.share * width, high - width));
    zoom(figure, [from, from + width]);
  };
  const press = (figure, svg, event) => {
    const step = event.shiftKey ? 0.1 : 0.01;
    const acts = {
      ArrowLeft: () => { svg.share = Math.max(0, svg.share - step); },
      ArrowRight: () => { svg.share = Math.min(1, svg.share + step); },
      Home: () => { svg.share = 0; },
      End: () => { svg.share = 1; },
      "+": () => zoomBy(figure, svg, 0.5),
      "-": () => zoomBy(figure, svg, 2),
      0: () => zoom(figure, null),
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { leave(); return; }
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
    place(svg);
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
      const left = parseFloat(getComputedStyle(svg).marginLeft); // labels of the axis are there
      copy.setAttribute("width", box.width);
      copy.setAttribute("x", left);
      copy.setAttribute("y", y);
      copy.setAttribute("overflow", "visible");
      y += box.height + 12;
      width = Math.max(width, left + box.width);
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
      svg.share = 0.5;
      const { low, high, at } = axis(svg, "x");
      for (const [name, value] of Object.entries({
        tabindex: 0, role: "slider", "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": at(0.5),
        "aria-valuetext": readOff(svg, 0.5), "aria-keyshortcuts": "ArrowLeft ArrowRight + - 0",
      })) svg.setAttribute(name, value);
      svg.addEventListener("keydown", (event) => press(figure, svg, event));
      svg.addEventListener("blur", leave);
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

  // Settings become inputs; the figures that follow from them are as on a page without a script.
  const DASH = "\u2013", DIGITS = 3;
  const printed = (value) => {
    if (!value) return "0";
    const rounded = Number(value.toExponential(DIGITS - 1));
    const decimals = Math.max(0, DIGITS - 1 - Math.floor(Math.log10(Math.abs(rounded))));
    if (decimals > 9 || Math.abs(value) >= 1e15) return value.toExponential(DIGITS - 1);
    const [whole, part] = value.toFixed(decimals).split(".");
    return [whole.replace(/\B(?=(\d{3})+$)/g, "\u202f"), ...(part ? [part] : [])].join(".");
  };
  const project = (cell, minutes, drives) => {
    const { perUnit, unitMinutes, always, isPerDrive, text } = JSON.parse(cell.dataset.formula);
    const isKnown = minutes >= unitMinutes && (drives > 0 || !isPerDrive);
    const fleet = isPerDrive ? drives : 1;
    const [number, ...others] = perUnit.map((each, place) => fleet * (each / minutes + (always[place] ?? 0)));
    const ends = others.length ? [Math.min(...others), Math.max(...others)] : [];
    cell.firstChild.textContent = isKnown ? text.replace("{0}", printed(number)) : DASH;
    const remark = cell.querySelector(".remark");
    if (remark) remark.textContent = isKnown ? ends.map(printed).join(" to ") : "";
  };
  for (const block of document.querySelectorAll(".projection")) {
    const inputs = [...block.querySelectorAll(".setting")].map((place) => {
      const input = document.createElement("input");
      Object.assign(input, { type: "number", step: "any", min: place.dataset.least, value: place.textContent, autocomplete: "off" });
      input.setAttribute("aria-label", place.dataset.name);
      place.replaceWith(input);
      return input;
    });
    const update = () => {
      const values = inputs.map((input) => input.checkValidity() ? input.valueAsNumber : 0);
      for (const cell of block.querySelectorAll("[data-formula]")) project(cell, ...values);
    };
    block.addEventListener("input", update);
  }

  // A link to a folded part opens it: browsers open only what a link's target is within.
  const unfold = (hash) => {
    const target = document.getElementById(decodeURIComponent(hash.slice(1)));
    const fold = target?.matches("details") ? target : target?.querySelector(":scope > details");
    if (!fold || fold.open) return;
    fold.open = true;
    target.scrollIntoView();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link) unfold(link.hash);
  });
  unfold(location.hash);
})();
